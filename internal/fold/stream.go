// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"
	"unsafe"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/internal/cadence"
	"github.com/otelcol-stream/otelcol-stream/internal/dialect"
)

// Key names a stream: the trace, and the span that its chunk spans lie below.
type Key struct {
	Trace  pcommon.TraceID
	Parent pcommon.SpanID
}

// Chunk is one chunk span of a batch.
type Chunk struct {
	Instant int64
	// ID is the id of the chunk span.
	ID pcommon.SpanID
	// Span is the whole span, Origin where it came from. Both may be left out when Store.Has or the chunks of the batch show that the
	// stream is one: what is kept then is the instant.
	Span   ptrace.Span
	Origin *Origin
}

// Batch are the chunk spans of one stream in one batch.
type Batch struct {
	Totals dialect.ChunkTotals
	Chunks []Chunk
	// Name, TraceState and Flags are the parent's, as far as a chunk span tells them.
	Name       string
	TraceState string
	Flags      uint32
	// Origin is where the first of the chunk spans came from.
	Origin *Origin
}

// fingerprint is the same for the same chunk spans in any order, so that a request that is sent again is recognised. Sums of well-mixed
// words of 64 bits collide by accident once in ages.
func (b *Batch) fingerprint() uint64 {
	sum := uint64(0)
	for i := range b.Chunks {
		sum += mix(binary.BigEndian.Uint64(b.Chunks[i].ID[:]) ^ mix(uint64(b.Chunks[i].Instant)))
	}
	return max(sum, 1) // 0 stands for no batch
}

// mix is the finaliser of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// remembered is the number of latest batches of a stream that are recognised when they come again.
const remembered = 4

// Held is a parent that is held back for chunk spans that come after it.
type Held struct {
	Span   ptrace.Span
	Origin *Origin

	size int64
}

// Stream is what is kept of one open stream. The fields that a chunk span reads and writes when the stream is open and shown to be one
// come first: with very many streams, each cache line of 64 bytes that is touched is waited for. The struct has a size that the allocator
// knows, a multiple of 64, so that every Stream begins with a line.
type Stream struct {
	Key      Key
	touched  int64 // when the last chunk span came
	list     *list // that it is in
	folded   bool  // a chunk span was reduced to its instant
	marked   bool  // it was touched since it was put into the list
	late     bool  // when it was opened, its parent had gone
	printAt  uint8
	Flags    uint32 // see Name
	prints   [remembered]uint64
	instants instants
	// Totals are of all chunk spans seen.
	Totals dialect.ChunkTotals
	beyond *cadence.Beyond

	origin      *Origin // of the first chunk span; nil when there is none
	kept        *wholes
	size        int64 // what the store counts of it
	countedKept int64
	prev, next  *Stream // in list
	// Name, TraceState and Flags are those that the first chunk span told.
	Name       string
	TraceState string
	// Parents are the held parents, nearly always one at most: the first is the stream's, the others have its ids.
	Parents []Held
	due     int64 // when the held parent goes out
}

// touch reads a word of each cache line that add needs, but for the first, which the look-up has read. Done for many streams before the
// first of them is changed, all these lines are fetched at the same time: with 100,000 open streams a chunk span takes a fifth less.
func (s *Stream) touch() uint64 {
	return s.prints[remembered-1] + uint64(s.instants.used) + uint64(s.Totals.Latest) + uint64(s.size)
}

// Origin is where the first chunk span came from; nil without one. It is valid until Release.
func (s *Stream) Origin() *Origin { return s.origin }

// Folded reports whether the stream can only go out as a summary. Otherwise AppendKept gives back its chunk spans.
func (s *Stream) Folded() bool { return s.folded }

// Kept is the number of chunk spans that AppendKept gives back.
func (s *Stream) Kept() int { return s.keptN() }

func (s *Stream) keptN() int {
	if s.kept == nil {
		return 0
	}
	return s.kept.n
}

func (s *Stream) keptSize() int64 {
	if s.kept == nil {
		return 0
	}
	return s.kept.size
}

// AppendKept appends the chunk spans of a stream that is not Folded, as they came. spans returns where those of an origin belong.
func (s *Stream) AppendKept(spans func(*Origin) ptrace.SpanSlice) {
	if s.kept == nil {
		return
	}
	for i := range s.kept.kinds {
		k := &s.kept.kinds[i]
		k.appendTo(spans(k.origin))
	}
}

// Release gives back what the stream shares with others. The stream must not be used after it.
func (s *Stream) Release() {
	if s.origin != nil {
		s.origin.Release()
		s.origin = nil
	}
	s.dropKept()
	for i := range s.Parents {
		s.Parents[i].Origin.Release()
	}
	s.Parents = nil
}

func (s *Stream) dropKept() {
	if s.kept == nil {
		return
	}
	for i := range s.kept.kinds {
		s.kept.kinds[i].origin.Release()
	}
	s.kept = nil
}

// View returns the kept instants of the stream, in any order, and what accounts for those beyond max; with is added when it is not nil.
// The stream stays as it is.
func (s *Stream) View(with *Batch, maxChunks int, stall time.Duration) ([]int64, *cadence.Beyond) {
	n := s.instants.n
	if with != nil {
		n += len(with.Chunks)
	}
	at := s.instants.appendTo(make([]int64, 0, n))
	beyond := s.beyond
	if with == nil {
		return at, beyond
	}
	if beyond != nil {
		b := *beyond
		b.Gaps.Buckets = slices.Clone(b.Gaps.Buckets)
		beyond = &b
	}
	with.sort()
	latest := s.Totals.Latest
	if s.Totals.Seen == 0 {
		latest = with.Totals.Earliest
	}
	for i := range with.Chunks {
		instant := with.Chunks[i].Instant
		if len(at) < maxChunks {
			at = append(at, instant)
			latest = max(latest, instant)
			continue
		}
		if beyond == nil {
			beyond = &cadence.Beyond{Last: latest}
		}
		beyond.Add(instant, stall)
	}
	return at, beyond
}

// sort brings the chunks into the order of time, in which they take the least memory and the chunks beyond a bound are the last ones.
func (b *Batch) sort() {
	for i := 1; i < len(b.Chunks); i++ {
		if b.Chunks[i].Instant < b.Chunks[i-1].Instant {
			slices.SortStableFunc(b.Chunks, func(x, y Chunk) int { return cmp.Compare(x.Instant, y.Instant) })
			return
		}
	}
}

// Knows reports whether a batch with the same chunk spans is part of the stream already.
func (s *Stream) Knows(b *Batch) bool {
	return len(b.Chunks) > 0 && s.knows(b.fingerprint())
}

func (s *Stream) knows(fingerprint uint64) bool { return slices.Contains(s.prints[:], fingerprint) }

func (s *Stream) remember(fingerprint uint64) {
	s.prints[s.printAt%remembered] = fingerprint
	s.printAt++
}

// addInstant keeps an instant, or what can be kept of it.
func (s *Stream) addInstant(at, latest int64, l *Limits) {
	if s.instants.n < l.MaxChunks {
		s.instants.add(at)
		return
	}
	if s.beyond == nil {
		s.beyond = &cadence.Beyond{Last: latest}
	}
	s.beyond.Add(at, l.StallThreshold)
}

// add takes in the chunk spans of a batch. It reports whether the stream holds more or less memory than before.
func (s *Stream) add(b *Batch, fingerprint uint64, l *Limits) (resized bool) {
	if s.origin == nil {
		s.origin = b.Origin.keep()
		s.Name, s.TraceState, s.Flags = b.Name, b.TraceState, b.Flags
		resized = true
	}
	b.sort()
	s.remember(fingerprint)
	latest := s.Totals.Latest
	if s.Totals.Seen == 0 {
		latest = b.Totals.Earliest
	}
	coded := cap(s.instants.coded)
	for i := range b.Chunks {
		s.addInstant(b.Chunks[i].Instant, latest, l)
		latest = max(latest, b.Chunks[i].Instant)
	}
	s.Totals.Merge(&b.Totals)
	if s.folded {
		return resized || s.beyond != nil || cap(s.instants.coded) != coded
	}
	if s.Totals.Stream(int64(l.MinSpread)) {
		s.fold()
		return true
	}
	for i := range b.Chunks {
		if b.Chunks[i].Origin == nil {
			// Another batch showed that the stream is one, and that stream has gone since.
			s.fold()
			return true
		}
		s.keep(b.Chunks[i].Origin, b.Chunks[i].Span)
	}
	return true
}

// fold drops the chunk spans themselves: from here on the stream goes out as a summary.
func (s *Stream) fold() {
	s.folded = true
	s.dropKept()
}

func (s *Stream) keep(origin *Origin, span ptrace.Span) {
	if s.kept == nil {
		s.kept = &wholes{}
	}
	s.kept.add(origin, span)
}

// join adds a stream of the same key that opened while this one was away. It takes over what the other shares.
func (s *Stream) join(o *Stream, l *Limits) {
	latest := s.Totals.Latest
	for _, at := range o.instants.appendTo(nil) {
		s.addInstant(at, latest, l)
		latest = max(latest, at)
	}
	// What the other only counted stays counted by Totals alone.
	s.Totals.Merge(&o.Totals)
	if s.origin == nil {
		s.origin, o.origin = o.origin, nil
		s.Name, s.TraceState, s.Flags = o.Name, o.TraceState, o.Flags
	}
	if s.kept == nil {
		s.kept = o.kept
	} else if o.kept != nil {
		s.kept.join(o.kept)
	}
	o.kept = nil
	if s.folded = s.folded || o.folded || s.Totals.Stream(int64(l.MinSpread)); s.folded {
		s.fold()
	}
	if len(s.Parents) == 0 {
		s.due = o.due
	}
	s.Parents = append(s.Parents, o.Parents...)
	o.Parents = nil
	for i := range o.prints { // oldest first
		if fingerprint := o.prints[(int(o.printAt)+i)%remembered]; fingerprint != 0 {
			s.remember(fingerprint)
		}
	}
	s.touched = max(s.touched, o.touched)
	o.Release()
}

const (
	// streamOverhead is the share of a stream in the table, which is between three eighths and three quarters full.
	streamOverhead = slotSize * 2
	streamSize     = int64(unsafe.Sizeof(Stream{})) + streamOverhead
	bucketSize     = int64(unsafe.Sizeof(cadence.Bucket{}))
)

// bytes estimates the memory that the stream holds.
func (s *Stream) bytes() int64 {
	n := streamSize + int64(cap(s.instants.coded)) + int64(len(s.Name)+len(s.TraceState))
	if s.beyond != nil {
		n += int64(unsafe.Sizeof(*s.beyond)) + int64(cap(s.beyond.Gaps.Buckets))*bucketSize
	}
	for i := range s.Parents {
		n += s.Parents[i].size
	}
	return n + s.keptSize()
}
