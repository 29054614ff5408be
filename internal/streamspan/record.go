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

// Names of the attributes, and of the two convention attributes that are filled in.
const (
	AttrPhase            = "stream.phase"
	AttrDialect          = "stream.dialect"
	AttrFirstChunkSource = "stream.first_chunk.source"
	AttrOutcome          = "stream.outcome"
	AttrTimeToFirstChunk = "stream.time_to_first_chunk"
	AttrDuration         = "stream.duration"
	AttrTail             = "stream.tail"
	AttrNested           = "stream.nested"
	AttrChunkCount       = "stream.chunk.count"
	AttrEventsCollapsed  = "stream.chunk.events_collapsed"
	AttrSpansFolded      = "stream.chunk.spans_folded"
	AttrQuality          = "stream.cadence.quality"
	AttrGapMean          = "stream.chunk.gap.mean"
	AttrGapP50           = "stream.chunk.gap.p50"
	AttrGapP95           = "stream.chunk.gap.p95"
	AttrGapP99           = "stream.chunk.gap.p99"
	AttrGapMax           = "stream.chunk.gap.max"
	AttrGapStddev        = "stream.chunk.gap.stddev"
	AttrGapJitter        = "stream.chunk.gap.jitter"
	AttrGapHistogram     = "stream.chunk.gap.histogram"
	AttrStallCount       = "stream.stall.count"
	AttrStallDuration    = "stream.stall.duration"
	AttrStallOffset      = "stream.stall.offset"
	AttrHeadBurst        = "stream.head_burst"
	AttrPeakRate         = "stream.chunk.rate.peak"
	AttrTokenCount       = "stream.token.count"
	AttrTokenSource      = "stream.token.source"
	AttrChunkTokens      = "stream.chunk.tokens"
	AttrTokenRate        = "stream.token.rate"
	AttrFluidity         = "stream.fluidity"
	AttrReaderWait       = "stream.reader.wait"
	AttrByteCount        = "stream.byte.count"
	AttrChunkBytes       = "stream.chunk.bytes"
	AttrSourceKind       = "stream.source.kind"
	AttrSourceOperation  = "stream.source.operation"

	attrErrorType     = "error.type"
	attrOperation     = "gen_ai.operation.name"
	attrRequestStream = "gen_ai.request.stream"
	attrResponseTTFC  = "gen_ai.response.time_to_first_chunk"
)

// Phase is which part of a streamed call a span describes. It is the value of stream.phase.
type Phase string

// Phases.
const (
	PhaseNone     Phase = ""
	PhaseRequest  Phase = "request"
	PhaseStream   Phase = "stream"
	PhaseWhole    Phase = "whole"
	PhaseEnvelope Phase = "envelope"
)

// Record is everything that the stream.* attributes of one span say.
type Record struct {
	Phase            Phase
	Dialect          string
	FirstChunkSource string
	Outcome          dialect.Outcome
	// TimeToFirstChunk is f − t0 and Duration t1 − f, both in seconds and absent when f is unknown.
	TimeToFirstChunk, Duration cadence.Value
	// Nested says that another span of the same call counts instead.
	Nested bool
	// EventsCollapsed and SpansFolded count what the summary replaced.
	EventsCollapsed, SpansFolded int64
	// SourceKind and SourceOperation are the kind and the GenAI operation of the span that was split.
	SourceKind      ptrace.SpanKind
	SourceOperation string
	// TokenSource is the key that gave the number of tokens.
	TokenSource string
	// GenAI says that the span carries a key of a GenAI namespace. It is not among the attributes.
	GenAI   bool
	Cadence cadence.Summary
}

// kindNames are the values of stream.source.kind.
var kindNames = [...]string{
	ptrace.SpanKindUnspecified: "SPAN_KIND_UNSPECIFIED",
	ptrace.SpanKindInternal:    "SPAN_KIND_INTERNAL",
	ptrace.SpanKindServer:      "SPAN_KIND_SERVER",
	ptrace.SpanKindClient:      "SPAN_KIND_CLIENT",
	ptrace.SpanKindProducer:    "SPAN_KIND_PRODUCER",
	ptrace.SpanKindConsumer:    "SPAN_KIND_CONSUMER",
}

// kindName is the name of a kind; one that OTLP does not know is unspecified.
func kindName(kind ptrace.SpanKind) string {
	if kind < 0 || int(kind) >= len(kindNames) {
		return kindNames[ptrace.SpanKindUnspecified]
	}
	return kindNames[kind]
}

// putCommon writes the attributes that every part of a stream carries.
func (r *Record) putCommon(m pcommon.Map, phase Phase) {
	m.PutStr(AttrPhase, string(phase))
	m.PutStr(AttrDialect, r.Dialect)
	if r.FirstChunkSource != "" {
		m.PutStr(AttrFirstChunkSource, r.FirstChunkSource)
	}
	m.PutStr(AttrOutcome, string(r.Outcome))
	putValue(m, AttrTimeToFirstChunk, r.TimeToFirstChunk)
	putValue(m, AttrDuration, r.Duration)
	if r.Nested {
		m.PutBool(AttrNested, true)
	}
}

// putCadence writes the attributes of the stream span, or of a span that was not split.
func (r *Record) putCadence(m pcommon.Map, phase Phase) {
	c := &r.Cadence
	m.PutStr(AttrQuality, c.Quality.String())
	putCount(m, AttrChunkCount, c.ChunkCount)
	putCount(m, AttrEventsCollapsed, r.EventsCollapsed)
	putCount(m, AttrSpansFolded, r.SpansFolded)
	for _, f := range valueFields {
		putValue(m, f.key, *f.of(c))
	}
	if c.Stalls {
		m.PutInt(AttrStallCount, c.StallCount)
	}
	if hasGaps(&c.Histogram) {
		putHistogram(m.PutEmptySlice(AttrGapHistogram), c.Histogram)
	}
	if c.TokensKnown {
		m.PutInt(AttrTokenCount, c.TokenCount)
		if r.TokenSource != "" {
			m.PutStr(AttrTokenSource, r.TokenSource)
		}
	}
	if c.BytesKnown {
		m.PutInt(AttrByteCount, c.ByteCount)
	}
	if phase == PhaseStream {
		m.PutStr(AttrSourceKind, kindName(r.SourceKind))
		if r.SourceOperation != "" {
			m.PutStr(AttrSourceOperation, r.SourceOperation)
		}
	}
}

func hasGaps(h *cadence.Histogram) bool { return h.Zero > 0 || len(h.Buckets) > 0 }

// attributes is the number of attributes of a stream span, and no less than that of the others.
func (r *Record) attributes() int {
	c := &r.Cadence
	n := 5 // phase, dialect, outcome, quality and the kind of the source are always there
	for _, there := range [...]bool{
		r.FirstChunkSource != "", r.TimeToFirstChunk.OK, r.Duration.OK, r.Nested, r.SourceOperation != "",
		c.ChunkCount > 0, r.EventsCollapsed > 0, r.SpansFolded > 0, c.Stalls, hasGaps(&c.Histogram),
		c.TokensKnown, c.TokensKnown && r.TokenSource != "", c.BytesKnown,
	} {
		if there {
			n++
		}
	}
	for _, f := range valueFields {
		if f.of(c).OK {
			n++
		}
	}
	return n
}

// valueFields pairs the attributes that are a double, or absent, with their fields.
var valueFields = []struct {
	key string
	of  func(*cadence.Summary) *cadence.Value
}{
	{AttrTail, func(c *cadence.Summary) *cadence.Value { return &c.Tail }},
	{AttrGapMean, func(c *cadence.Summary) *cadence.Value { return &c.GapMean }},
	{AttrGapP50, func(c *cadence.Summary) *cadence.Value { return &c.GapP50 }},
	{AttrGapP95, func(c *cadence.Summary) *cadence.Value { return &c.GapP95 }},
	{AttrGapP99, func(c *cadence.Summary) *cadence.Value { return &c.GapP99 }},
	{AttrGapMax, func(c *cadence.Summary) *cadence.Value { return &c.GapMax }},
	{AttrGapStddev, func(c *cadence.Summary) *cadence.Value { return &c.GapStddev }},
	{AttrGapJitter, func(c *cadence.Summary) *cadence.Value { return &c.GapJitter }},
	{AttrStallDuration, func(c *cadence.Summary) *cadence.Value { return &c.StallDuration }},
	{AttrStallOffset, func(c *cadence.Summary) *cadence.Value { return &c.StallOffset }},
	{AttrHeadBurst, func(c *cadence.Summary) *cadence.Value { return &c.HeadBurst }},
	{AttrPeakRate, func(c *cadence.Summary) *cadence.Value { return &c.PeakRate }},
	{AttrChunkTokens, func(c *cadence.Summary) *cadence.Value { return &c.ChunkTokens }},
	{AttrTokenRate, func(c *cadence.Summary) *cadence.Value { return &c.TokenRate }},
	{AttrFluidity, func(c *cadence.Summary) *cadence.Value { return &c.Fluidity }},
	{AttrReaderWait, func(c *cadence.Summary) *cadence.Value { return &c.ReaderWait }},
	{AttrChunkBytes, func(c *cadence.Summary) *cadence.Value { return &c.ChunkBytes }},
}

func putValue(m pcommon.Map, key string, v cadence.Value) {
	if v.OK {
		m.PutDouble(key, v.V)
	}
}

func putCount(m pcommon.Map, key string, n int64) {
	if n > 0 {
		m.PutInt(key, n)
	}
}

func putHistogram(s pcommon.Slice, h cadence.Histogram) {
	s.EnsureCapacity(2 + 2*len(h.Buckets))
	s.AppendEmpty().SetInt(int64(h.Scale))
	s.AppendEmpty().SetInt(h.Zero)
	for _, b := range h.Buckets {
		s.AppendEmpty().SetInt(int64(b.Index))
		s.AppendEmpty().SetInt(b.Count)
	}
}

// Reader reads Records, and other attributes in the same pass. It keeps scratch from one to the next and is not safe for concurrent use. One
// that NewReader did not make finds nothing.
type Reader struct {
	// bySketch holds what reads an attribute under the sketch of its key. Nearly all other keys find nothing there, and a look-up costs an
	// index and a comparison, a quarter of what a map's hash does: a stream span has thirty attributes.
	bySketch [256][]reading
	wanted   []pcommon.Value
	ints     []int64
}

type reading struct {
	key string
	set func(*Reader, *Record, pcommon.Value)
}

// NewReader returns a Reader that also looks for the wanted attributes, whose keys are not empty.
func NewReader(wanted []string) *Reader {
	r := &Reader{wanted: make([]pcommon.Value, len(wanted))}
	add := func(key string, set func(*Reader, *Record, pcommon.Value)) {
		r.bySketch[sketch(key)] = append(r.bySketch[sketch(key)], reading{key, set})
	}
	for key, set := range setters() {
		add(key, set)
	}
	for i, key := range wanted {
		add(key, func(r *Reader, _ *Record, v pcommon.Value) { r.wanted[i] = v })
	}
	return r
}

// Read fills rec from the stream.* attributes of a span. It reports false when the span has no stream.phase. An attribute of the wrong
// type or a histogram that cannot be is left out.
func (r *Reader) Read(attrs pcommon.Map, rec *Record) bool {
	buckets := rec.Cadence.Histogram.Buckets[:0]
	*rec = Record{}
	rec.Cadence.Histogram.Buckets = buckets
	clear(r.wanted)
	for key, v := range attrs.All() {
		for _, f := range r.bySketch[sketch(key)] {
			if f.key == key {
				f.set(r, rec, v)
			}
		}
	}
	return rec.Phase != PhaseNone
}

// Wanted returns the wanted attributes of the span that was read last, in the order of their keys, the zero Value for those that it does
// not have.
func (r *Reader) Wanted() []pcommon.Value { return r.wanted }

// Release lets go of the span that was read last.
func (r *Reader) Release() { clear(r.wanted) }

// sketch is a hash of what it costs nothing to look at in a key: its length, its last byte and one from the middle. Our keys all begin
// alike and differ there.
func sketch(key string) uint8 {
	if key == "" {
		return 0
	}
	return uint8(len(key)) + 31*key[len(key)/2] + 113*key[len(key)-1]
}

func setters() map[string]func(*Reader, *Record, pcommon.Value) {
	str := func(of func(*Record) *string) func(*Reader, *Record, pcommon.Value) {
		return func(_ *Reader, rec *Record, v pcommon.Value) {
			if v.Type() == pcommon.ValueTypeStr {
				*of(rec) = v.Str()
			}
		}
	}
	integer := func(of func(*Record) *int64) func(*Reader, *Record, pcommon.Value) {
		return func(_ *Reader, rec *Record, v pcommon.Value) {
			if v.Type() == pcommon.ValueTypeInt && v.Int() >= 0 {
				*of(rec) = v.Int()
			}
		}
	}
	value := func(of func(*Record) *cadence.Value) func(*Reader, *Record, pcommon.Value) {
		return func(_ *Reader, rec *Record, v pcommon.Value) {
			if v.Type() == pcommon.ValueTypeDouble {
				*of(rec) = cadence.Of(v.Double())
			}
		}
	}
	m := map[string]func(*Reader, *Record, pcommon.Value){
		AttrPhase:            str(func(r *Record) *string { return (*string)(&r.Phase) }),
		AttrDialect:          str(func(r *Record) *string { return &r.Dialect }),
		AttrFirstChunkSource: str(func(r *Record) *string { return &r.FirstChunkSource }),
		AttrOutcome:          str(func(r *Record) *string { return (*string)(&r.Outcome) }),
		AttrSourceOperation:  str(func(r *Record) *string { return &r.SourceOperation }),
		AttrTokenSource:      str(func(r *Record) *string { return &r.TokenSource }),
		AttrTimeToFirstChunk: value(func(r *Record) *cadence.Value { return &r.TimeToFirstChunk }),
		AttrDuration:         value(func(r *Record) *cadence.Value { return &r.Duration }),
		AttrChunkCount:       integer(func(r *Record) *int64 { return &r.Cadence.ChunkCount }),
		AttrEventsCollapsed:  integer(func(r *Record) *int64 { return &r.EventsCollapsed }),
		AttrSpansFolded:      integer(func(r *Record) *int64 { return &r.SpansFolded }),
		AttrStallCount: func(_ *Reader, rec *Record, v pcommon.Value) {
			if v.Type() == pcommon.ValueTypeInt && v.Int() >= 0 {
				rec.Cadence.Stalls, rec.Cadence.StallCount = true, v.Int()
			}
		},
		AttrTokenCount: func(_ *Reader, rec *Record, v pcommon.Value) {
			if v.Type() == pcommon.ValueTypeInt && v.Int() >= 0 {
				rec.Cadence.TokensKnown, rec.Cadence.TokenCount = true, v.Int()
			}
		},
		AttrByteCount: func(_ *Reader, rec *Record, v pcommon.Value) {
			if v.Type() == pcommon.ValueTypeInt && v.Int() >= 0 {
				rec.Cadence.BytesKnown, rec.Cadence.ByteCount = true, v.Int()
			}
		},
		AttrNested: func(_ *Reader, rec *Record, v pcommon.Value) {
			rec.Nested = v.Type() == pcommon.ValueTypeBool && v.Bool()
		},
		AttrQuality: func(_ *Reader, rec *Record, v pcommon.Value) {
			if v.Type() != pcommon.ValueTypeStr {
				return
			}
			for q := cadence.QualityNone; q <= cadence.QualityExact; q++ {
				if v.Str() == q.String() {
					rec.Cadence.Quality = q
				}
			}
		},
		AttrSourceKind: func(_ *Reader, rec *Record, v pcommon.Value) {
			if v.Type() == pcommon.ValueTypeStr {
				rec.SourceKind = ptrace.SpanKind(max(0, slices.Index(kindNames[:], v.Str())))
			}
		},
		AttrGapHistogram: func(r *Reader, rec *Record, v pcommon.Value) {
			if v.Type() == pcommon.ValueTypeSlice {
				r.histogram(v.Slice(), &rec.Cadence.Histogram)
			}
		},
	}
	for _, f := range valueFields {
		m[f.key] = value(func(r *Record) *cadence.Value { return f.of(&r.Cadence) })
	}
	return m
}

func (r *Reader) histogram(s pcommon.Slice, h *cadence.Histogram) {
	n := s.Len()
	r.ints = slices.Grow(r.ints[:0], n)[:n]
	for i := range r.ints {
		v := s.At(i)
		// The number of what is no int is 0. To ask for the type is dearer, and a histogram has a hundred numbers.
		number := v.Int()
		if number == 0 && v.Type() != pcommon.ValueTypeInt {
			return
		}
		r.ints[i] = number
	}
	// What cannot be leaves the histogram empty.
	_ = h.SetInts(r.ints)
}
