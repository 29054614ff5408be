// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamspan

import (
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/internal/cadence"
	"github.com/otelcol-stream/otelcol-stream/internal/dialect"
)

// Reader reads Records, and other attributes in the same pass. It is not safe for concurrent use.
type Reader struct {
	// slots holds the attributes that are looked for. Nearly all other keys find nothing under their sketch, and a look-up costs an index
	// and a comparison, a quarter of what a map's hash does: a stream span has thirty attributes.
	slots [256][]slot
	// layouts holds where the attributes of the spans before stood, by the number of attributes.
	layouts [8]layout

	// fields and wanted hold the attributes of the span that was read last, of fields those that are in has.
	fields [numFields]pcommon.Value
	has    fieldSet
	wanted []pcommon.Value
	// shared are the wanted attributes that are fields as well.
	shared []shared
	gaps   int64
}

// slot is where an attribute goes: among the fields or, beyond those, among the wanted. Slot 0 is that of an attribute nobody looks for.
type slot struct {
	key string
	to  uint
}

// shared is a wanted attribute that is found as a field.
type shared struct {
	field  field
	wanted int
}

// layout predicts which attribute is the next. The spans of a batch that one instrumentation wrote and our processor split have the same
// attributes in the same order, and to see that a key is the one expected takes half the time of looking it up.
type layout [maxPredicted]prediction

type prediction struct {
	key key
	to  uint
}

// maxPredicted is the number of attributes of a span that are predicted.
const maxPredicted = 64

// fieldSet is a set of fields.
type fieldSet uint64

const _ = uint(64 - numFields) // there is a bit for each

func (s fieldSet) holds(f field) bool { return s&(1<<f) != 0 }

// field is a part of a Record that one attribute fills.
type field uint8

const (
	fieldNone field = iota
	fieldPhase
	fieldDialect
	fieldFirstChunkSource
	fieldOutcome
	fieldTimeToFirstChunk
	fieldDuration
	fieldNested
	fieldChunkCount
	fieldEventsCollapsed
	fieldSpansFolded
	fieldQuality
	fieldStallCount
	fieldTokenCount
	fieldTokenSource
	fieldByteCount
	fieldSourceKind
	fieldSourceOperation
	fieldHistogram
	// The values of the cadence.
	fieldTail
	fieldGapMean
	fieldGapP50
	fieldGapP95
	fieldGapP99
	fieldGapMax
	fieldGapStddev
	fieldGapJitter
	fieldStallDuration
	fieldStallOffset
	fieldHeadBurst
	fieldPeakRate
	fieldChunkTokens
	fieldTokenRate
	fieldFluidity
	fieldReaderWait
	fieldChunkBytes
	numFields
)

var fieldKeys = [numFields]string{
	fieldPhase: AttrPhase, fieldDialect: AttrDialect, fieldFirstChunkSource: AttrFirstChunkSource, fieldOutcome: AttrOutcome,
	fieldTimeToFirstChunk: AttrTimeToFirstChunk, fieldDuration: AttrDuration, fieldNested: AttrNested, fieldChunkCount: AttrChunkCount,
	fieldEventsCollapsed: AttrEventsCollapsed, fieldSpansFolded: AttrSpansFolded, fieldQuality: AttrQuality, fieldStallCount: AttrStallCount,
	fieldTokenCount: AttrTokenCount, fieldTokenSource: AttrTokenSource, fieldByteCount: AttrByteCount, fieldSourceKind: AttrSourceKind,
	fieldSourceOperation: AttrSourceOperation, fieldHistogram: AttrGapHistogram,
	fieldTail: AttrTail, fieldGapMean: AttrGapMean, fieldGapP50: AttrGapP50, fieldGapP95: AttrGapP95, fieldGapP99: AttrGapP99,
	fieldGapMax: AttrGapMax, fieldGapStddev: AttrGapStddev, fieldGapJitter: AttrGapJitter, fieldStallDuration: AttrStallDuration,
	fieldStallOffset: AttrStallOffset, fieldHeadBurst: AttrHeadBurst, fieldPeakRate: AttrPeakRate, fieldChunkTokens: AttrChunkTokens,
	fieldTokenRate: AttrTokenRate, fieldFluidity: AttrFluidity, fieldReaderWait: AttrReaderWait, fieldChunkBytes: AttrChunkBytes,
}

// NewReader returns a Reader that also looks for the wanted attributes, whose keys are not empty and differ. It passes over the stream.*
// attributes that are unread.
func NewReader(wanted []string, unread ...string) *Reader {
	r := &Reader{wanted: make([]pcommon.Value, len(wanted))}
	for f := fieldNone + 1; f < numFields; f++ {
		if !slices.Contains(unread, fieldKeys[f]) {
			r.add(fieldKeys[f], uint(f))
		}
	}
	for i, key := range wanted {
		if at := r.find(key); at != 0 {
			r.shared = append(r.shared, shared{field(at), i})
		} else {
			r.add(key, uint(numFields)+uint(i))
		}
	}
	return r
}

func (r *Reader) add(key string, to uint) {
	at := &r.slots[sketch(key)]
	*at = append(*at, slot{key, to})
}

// find returns where the attribute of a key goes.
func (r *Reader) find(key string) uint {
	for _, s := range r.slots[sketch(key)] {
		if s.key == key {
			return s.to
		}
	}
	return 0
}

// predict makes key the one that is expected. In the loop, which comes here seldom, it would take registers from the rest.
//
//go:noinline
func (r *Reader) predict(p *prediction, key string) {
	p.key, p.to = keyOf(key), r.find(key)
}

// Read fills rec from the stream.* attributes of a span. It reports false when the span has no stream.phase. An attribute of the wrong
// type or a histogram that cannot be is left out.
//
// It first finds all attributes and then goes through the fields in an order that is always the same. To fill each field as its attribute
// comes takes a jump that the processor often does not foresee.
func (r *Reader) Read(attrs pcommon.Map, rec *Record) bool {
	clear(r.wanted)
	has := fieldSet(0)
	l := &r.layouts[attrs.Len()%len(r.layouts)]
	i := 0
	for key, v := range attrs.All() {
		p := &l[min(i, maxPredicted-1)] // what comes after those has to share
		i++
		// Written out here: to call a function that does it takes longer than it does.
		n := len(key)
		same := n == p.key.n
		if same && n > 16 {
			end := key[n-16:]
			same = word(key) == p.key.a && word(key[8:]) == p.key.b && word(end) == p.key.c && word(end[8:]) == p.key.d
		} else if same && n >= 8 {
			same = word(key) == p.key.a && word(key[n-8:]) == p.key.d
		}
		if !same {
			r.predict(p, key)
		}
		if p.to < uint(numFields) {
			r.fields[p.to] = v
			has |= 1 << (p.to % 64)
		} else {
			r.wanted[p.to-uint(numFields)] = v
		}
	}
	r.has = has
	for _, s := range r.shared {
		if has.holds(s.field) {
			r.wanted[s.wanted] = r.fields[s.field]
		}
	}
	r.fill(rec)
	return rec.Phase != PhaseNone
}

// Wanted returns the wanted attributes of the span that was read last, in the order of their keys, the zero Value for those that it does
// not have.
func (r *Reader) Wanted() []pcommon.Value { return r.wanted }

// Gaps returns the number of gaps in the histogram that was read last.
func (r *Reader) Gaps() int64 { return r.gaps }

// Release lets go of the span that was read last.
func (r *Reader) Release() {
	clear(r.fields[:])
	clear(r.wanted)
}

// sketch is a hash of what it costs nothing to look at in a key: its length, its last byte and one from the middle. Our keys all begin
// alike and differ there.
func sketch(key string) uint8 {
	if key == "" {
		return 0
	}
	return uint8(len(key)) + 31*key[len(key)/2] + 113*key[len(key)-1]
}

// key is a key made to be compared with many others: four words from both ends, which cover every key of 8 to 32 bytes. A comparison of
// strings is a call and a loop, which takes as long as all else that finds an attribute. For a key of another length n is -1, and nothing
// equals it.
type key struct {
	n          int
	a, b, c, d uint64
}

func keyOf(s string) key {
	n := len(s)
	switch {
	case n < 8 || n > 32:
		return key{n: -1}
	case n > 16:
		return key{n, word(s), word(s[8:]), word(s[n-16:]), word(s[n-8:])}
	default:
		return key{n: n, a: word(s), d: word(s[n-8:])}
	}
}

// word is the first eight bytes of s. The compiler makes one load of it.
func word(s string) uint64 {
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// Groups of fields of which a stream often has none.
const (
	gapFields = 1<<fieldGapMean | 1<<fieldGapMax | 1<<fieldHistogram | 1<<fieldStallCount | 1<<fieldStallDuration | 1<<fieldHeadBurst |
		1<<fieldFluidity | 1<<fieldReaderWait | 1<<fieldChunkTokens
	otherFields = 1<<fieldNested | 1<<fieldEventsCollapsed | 1<<fieldSpansFolded | 1<<fieldTail | 1<<fieldGapP50 | 1<<fieldGapP95 |
		1<<fieldGapP99 | 1<<fieldGapStddev | 1<<fieldGapJitter | 1<<fieldStallOffset | 1<<fieldPeakRate | 1<<fieldByteCount |
		1<<fieldChunkBytes
)

// fill fills the record with what was found.
func (r *Reader) fill(rec *Record) {
	buckets := rec.Cadence.Histogram.Buckets[:0]
	*rec = Record{}
	rec.Cadence.Histogram.Buckets = buckets
	r.gaps = 0
	c := &rec.Cadence

	rec.Phase = Phase(r.text(fieldPhase))
	rec.Dialect = r.text(fieldDialect)
	rec.FirstChunkSource = r.text(fieldFirstChunkSource)
	rec.Outcome = dialect.Outcome(r.text(fieldOutcome))
	rec.TimeToFirstChunk = r.value(fieldTimeToFirstChunk)
	rec.Duration = r.value(fieldDuration)
	rec.SourceKind = kindOf(r.text(fieldSourceKind))
	rec.SourceOperation = r.text(fieldSourceOperation)
	rec.TokenSource = r.text(fieldTokenSource)
	c.Quality = qualityOf(r.text(fieldQuality))
	c.ChunkCount, _ = r.count(fieldChunkCount)
	c.TokenCount, c.TokensKnown = r.count(fieldTokenCount)
	c.TokenRate = r.value(fieldTokenRate)
	if r.has&gapFields != 0 {
		c.GapMean = r.value(fieldGapMean)
		c.GapMax = r.value(fieldGapMax)
		c.StallCount, c.Stalls = r.count(fieldStallCount)
		c.StallDuration = r.value(fieldStallDuration)
		c.HeadBurst = r.value(fieldHeadBurst)
		c.ChunkTokens = r.value(fieldChunkTokens)
		c.Fluidity = r.value(fieldFluidity)
		c.ReaderWait = r.value(fieldReaderWait)
		if v := r.fields[fieldHistogram]; r.has.holds(fieldHistogram) && v.Type() == pcommon.ValueTypeSlice {
			r.gaps = readHistogram(v.Slice(), &c.Histogram)
		}
	}
	if r.has&otherFields != 0 {
		rec.Nested = r.has.holds(fieldNested) && r.fields[fieldNested].Bool()
		rec.EventsCollapsed, _ = r.count(fieldEventsCollapsed)
		rec.SpansFolded, _ = r.count(fieldSpansFolded)
		c.Tail = r.value(fieldTail)
		c.GapP50 = r.value(fieldGapP50)
		c.GapP95 = r.value(fieldGapP95)
		c.GapP99 = r.value(fieldGapP99)
		c.GapStddev = r.value(fieldGapStddev)
		c.GapJitter = r.value(fieldGapJitter)
		c.StallOffset = r.value(fieldStallOffset)
		c.PeakRate = r.value(fieldPeakRate)
		c.ByteCount, c.BytesKnown = r.count(fieldByteCount)
		c.ChunkBytes = r.value(fieldChunkBytes)
	}
}

// The following read a field, absent when it was not found or is of another type.

func (r *Reader) text(f field) string {
	if !r.has.holds(f) {
		return ""
	}
	return r.fields[f].Str()
}

func (r *Reader) value(f field) cadence.Value {
	if !r.has.holds(f) {
		return cadence.Value{}
	}
	return valueOf(r.fields[f])
}

func (r *Reader) count(f field) (n int64, ok bool) {
	if !r.has.holds(f) {
		return 0, false
	}
	return countOf(r.fields[f])
}

// A value of another type gives zero. Only then the type is asked for, which is dearer than the value.

func valueOf(v pcommon.Value) cadence.Value {
	d := v.Double()
	return cadence.Value{V: d, OK: d != 0 || v.Type() == pcommon.ValueTypeDouble}
}

func countOf(v pcommon.Value) (n int64, ok bool) {
	n = v.Int()
	if n < 0 || n == 0 && v.Type() != pcommon.ValueTypeInt {
		return 0, false
	}
	return n, true
}

func qualityOf(s string) cadence.Quality {
	switch s {
	case "mean":
		return cadence.QualityMean
	case "partial":
		return cadence.QualityPartial
	case "exact":
		return cadence.QualityExact
	default:
		return cadence.QualityNone
	}
}

func kindOf(s string) ptrace.SpanKind {
	switch s {
	case "SPAN_KIND_INTERNAL":
		return ptrace.SpanKindInternal
	case "SPAN_KIND_SERVER":
		return ptrace.SpanKindServer
	case "SPAN_KIND_CLIENT":
		return ptrace.SpanKindClient
	case "SPAN_KIND_PRODUCER":
		return ptrace.SpanKindProducer
	case "SPAN_KIND_CONSUMER":
		return ptrace.SpanKindConsumer
	default:
		return ptrace.SpanKindUnspecified
	}
}

// readHistogram reads the form of stream.chunk.gap.histogram into h, which is empty, and returns the number of gaps. It leaves h empty when
// cadence.Histogram.SetInts would refuse the numbers. Unlike that one it takes a single pass.
func readHistogram(s pcommon.Slice, h *cadence.Histogram) (total int64) {
	n := s.Len()
	if n < 2 || n%2 != 0 || n > 2+2*cadence.MaxBuckets {
		return 0
	}
	scale, zero := s.At(0).Int(), s.At(1).Int()
	if scale == 0 && !isInt(s.At(0)) || zero == 0 && !isInt(s.At(1)) {
		return 0
	}
	if scale < cadence.MinScale || scale > cadence.MaxScale || zero < 0 || zero > cadence.MaxCount {
		return 0
	}
	least, most := cadence.Indexes(int(scale))
	rest := cadence.MaxCount - zero
	buckets := slices.Grow(h.Buckets, n/2-1)[:n/2-1]
	for i := range buckets {
		index, count := s.At(2+2*i).Int(), s.At(3+2*i).Int()
		if index < least || index > most || count <= 0 || count > rest {
			return 0
		}
		// The number of what is no int is 0, as a count refused. Only of an index it is asked, since to ask is dearer.
		if index == 0 && !isInt(s.At(2+2*i)) {
			return 0
		}
		buckets[i] = cadence.Bucket{Index: int(index), Count: count}
		least = index + 1
		rest -= count
	}
	h.Scale, h.Zero, h.Buckets = int(scale), zero, buckets
	return cadence.MaxCount - rest
}

func isInt(v pcommon.Value) bool { return v.Type() == pcommon.ValueTypeInt }
