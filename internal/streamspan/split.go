// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamspan

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/internal/dialect"
)

// Mode is what becomes of a streaming span.
type Mode string

// Modes.
const (
	// ModeSplit turns the span into a request span and a stream span.
	ModeSplit Mode = "split"
	// ModeAnnotate leaves the span whole and adds the summary.
	ModeAnnotate Mode = "annotate"
	// ModeNest leaves the span whole and puts a request and a stream span below it.
	ModeNest Mode = "nest"
)

// Result is what became of a streaming span. It is a value of the attribute `result` of the component's own telemetry.
type Result string

// Results.
const (
	ResultSplit     Result = "split"
	ResultAnnotated Result = "annotated"
	ResultEnveloped Result = "enveloped"
	// ResultWhole is a span that streams and yet has no first-chunk instant that can be trusted.
	ResultWhole Result = "whole"
)

// Options are the settings of a Splitter.
type Options struct {
	Mode   Mode
	Suffix string
	// CopyAttributes lists the attributes of a span that its stream span gets too.
	CopyAttributes []string
	// KeepChunkEvents leaves per-chunk events where they are.
	KeepChunkEvents bool
	// KeepStalls is the number of longest stalls whose two events survive the collapse.
	KeepStalls int
	// StallThreshold is the shortest gap that counts as a stall.
	StallThreshold time.Duration
}

// Splitter rewrites the spans that a Finder found. It is not safe for concurrent use.
type Splitter struct {
	opts Options
	// copySet holds the keys to copy under their sketch, see Reader.
	copySet [256][]string
	// copied holds the positions of the attributes to copy.
	copied []int
	order  []chunkEvent
	stalls []stall
}

// NewSplitter returns a Splitter.
func NewSplitter(opts Options) *Splitter {
	s := &Splitter{opts: opts}
	for _, key := range opts.CopyAttributes {
		s.copySet[sketch(key)] = append(s.copySet[sketch(key)], key)
	}
	return s
}

// Applied says what was done to a span.
type Applied struct {
	Result Result
	// Reason says why a span was left whole.
	Reason dialect.Reason
	// Collapsed counts the events that the summary replaced.
	Collapsed int64
}

// Apply rewrites one found span as its record says. New spans go to the end of the span's scope, so that the order of the others stays.
func (s *Splitter) Apply(f *Found, rec *Record) Applied {
	rec.EventsCollapsed = s.chooseEvents(f, rec)
	a := Applied{Collapsed: rec.EventsCollapsed}
	genAI := rec.GenAI
	switch {
	case !f.Decision.FirstKnown:
		a.Result, a.Reason = ResultWhole, reason(f, rec)
		s.whole(f, rec)
	case s.opts.Mode == ModeAnnotate:
		a.Result = ResultAnnotated
		s.whole(f, rec)
	case s.opts.Mode == ModeNest:
		a.Result = ResultEnveloped
		s.nest(f, rec)
	default:
		a.Result = ResultSplit
		s.split(f, rec)
	}
	if genAI {
		fillConvention(f.Span.Attributes(), rec)
	}
	return a
}

func (s *Splitter) whole(f *Found, rec *Record) {
	attrs := f.Span.Attributes()
	attrs.EnsureCapacity(attrs.Len() + rec.attributes())
	rec.putCommon(attrs, PhaseWhole)
	rec.putCadence(attrs, PhaseWhole)
	dropCollapsed(f, rec)
}

func (s *Splitter) split(f *Found, rec *Record) {
	// The spans of a scope are pointers, so that adding one moves none of the others.
	t := f.Scope.Spans().AppendEmpty()
	r := f.Span
	s.streamSpan(t, f, rec)
	t.SetParentSpanID(r.SpanID())

	r.Status().MoveTo(t.Status())
	attrs := r.Attributes()
	if v, ok := attrs.Get(attrErrorType); ok {
		v.MoveTo(t.Attributes().PutEmpty(attrErrorType))
		attrs.Remove(attrErrorType)
	}
	r.SetEndTimestamp(pcommon.Timestamp(f.Decision.First))
	divideEvents(f, rec, t)
	rec.putCommon(attrs, PhaseRequest)
}

func (s *Splitter) nest(f *Found, rec *Record) {
	r, t := f.Scope.Spans().AppendEmpty(), f.Scope.Spans().AppendEmpty()
	s.streamSpan(t, f, rec)
	t.SetParentSpanID(f.Span.SpanID())

	r.SetTraceID(f.Span.TraceID())
	r.SetSpanID(derivedID(f.Span, idRequest))
	r.SetParentSpanID(f.Span.SpanID())
	r.SetName(f.Span.Name())
	r.SetKind(ptrace.SpanKindInternal)
	r.SetFlags(childFlags(f.Span))
	f.Span.TraceState().CopyTo(r.TraceState())
	r.SetStartTimestamp(f.Span.StartTimestamp())
	r.SetEndTimestamp(pcommon.Timestamp(f.Decision.First))
	s.collect(f.Span.Attributes())
	r.Attributes().EnsureCapacity(len(s.copied) + rec.attributes())
	s.putCopied(f.Span.Attributes(), r.Attributes())
	rec.putCommon(r.Attributes(), PhaseRequest)

	attrs := f.Span.Attributes()
	attrs.PutStr(AttrPhase, string(PhaseEnvelope))
	attrs.PutStr(AttrDialect, rec.Dialect)
	attrs.PutStr(AttrOutcome, string(rec.Outcome))
	if rec.Nested {
		attrs.PutBool(AttrNested, true)
	}
	dropCollapsed(f, rec)
}

// streamSpan fills in the stream span of a found span, but for its parent, its status and its events.
func (s *Splitter) streamSpan(t ptrace.Span, f *Found, rec *Record) {
	src := f.Span
	t.SetTraceID(src.TraceID())
	t.SetSpanID(derivedID(src, idStream))
	t.SetName(src.Name() + s.opts.Suffix)
	t.SetKind(ptrace.SpanKindInternal)
	t.SetFlags(childFlags(src))
	src.TraceState().CopyTo(t.TraceState())
	t.SetStartTimestamp(pcommon.Timestamp(f.Decision.First))
	t.SetEndTimestamp(src.EndTimestamp())
	attrs := t.Attributes()
	// Most streams have half of the attributes that there are: room for all of them would have to be cleared and collected.
	s.collect(src.Attributes())
	attrs.EnsureCapacity(rec.attributes() + len(s.copied) + 1) // error.type may follow
	rec.putCommon(attrs, PhaseStream)
	rec.putCadence(attrs, PhaseStream)
	s.putCopied(src.Attributes(), attrs)
}

// collect notes where the attributes stand that are copied: to note what they are would cost write barriers.
func (s *Splitter) collect(from pcommon.Map) {
	s.copied = s.copied[:0]
	at := 0
	for key := range from.All() {
		if slices.Contains(s.copySet[sketch(key)], key) {
			s.copied = append(s.copied, at)
		}
		at++
	}
}

// putCopied copies the attributes that collect has noted.
func (s *Splitter) putCopied(from, to pcommon.Map) {
	next, at := s.copied, 0
	for key, v := range from.All() {
		if len(next) == 0 {
			return
		}
		if at == next[0] {
			v.CopyTo(to.PutEmpty(key))
			next = next[1:]
		}
		at++
	}
}

// The flags of a span: the low byte is the W3C trace flags, the two above say whether the parent is remote and whether that is known.
const (
	flagsW3C         = 0xff
	flagsHasIsRemote = 0x100
)

// childFlags are the flags of a span whose parent is known to be local.
func childFlags(src ptrace.Span) uint32 {
	return src.Flags()&flagsW3C | flagsHasIsRemote
}

const (
	idStream  byte = 's'
	idRequest byte = 'r'
	idChunks  byte = 'c'
)

// derivedID hashes the ids of a span to the id of its part, so that a batch that is sent again gives the same spans again.
func derivedID(src ptrace.Span, part byte) pcommon.SpanID {
	trace, span := src.TraceID(), src.SpanID()
	var buf [len(trace) + len(span) + 1]byte
	copy(buf[:], trace[:])
	copy(buf[len(trace):], span[:])
	buf[len(buf)-1] = part
	var id pcommon.SpanID
	binary.BigEndian.PutUint64(id[:], max(1, xxhash.Sum64(buf[:])))
	return id
}

// fillConvention adds the GenAI convention's attributes where the instrumentation did not, so that one convention comes out whatever came
// in.
func fillConvention(attrs pcommon.Map, rec *Record) {
	if _, ok := attrs.Get(attrRequestStream); !ok {
		attrs.PutBool(attrRequestStream, true)
	}
	if _, ok := attrs.Get(attrResponseTTFC); !ok {
		putValue(attrs, attrResponseTTFC, rec.TimeToFirstChunk)
	}
}

type chunkEvent struct {
	at    int64
	index int
}

type stall struct {
	gap int64
	at  int // index of its second event in the order of time
}

// chooseEvents decides which chunk events the summary replaces and returns their number. Those that stay are marked as no chunks.
func (s *Splitter) chooseEvents(f *Found, rec *Record) int64 {
	c := &f.Evidence.Chunks
	switch {
	case s.opts.KeepChunkEvents:
		clear(c.Classes)
		c.Events = 0
	case s.opts.KeepStalls > 0 && rec.Cadence.StallCount > 0:
		s.keepStalls(f)
	}
	return int64(c.Events)
}

// keepStalls marks the two events around each of the longest stalls, the first of equals first.
func (s *Splitter) keepStalls(f *Found) {
	c := &f.Evidence.Chunks
	events := f.Span.Events()
	s.order, s.stalls = s.order[:0], s.stalls[:0]
	for i, class := range c.Classes {
		if class != dialect.EventChunk {
			continue
		}
		if at := f.Evidence.EventTime(events.At(i)); f.Evidence.Holds(at) {
			s.order = append(s.order, chunkEvent{at: at, index: i})
		}
	}
	slices.SortStableFunc(s.order, func(a, b chunkEvent) int { return cmp.Compare(a.at, b.at) })
	for i := 1; i < len(s.order); i++ {
		if gap := s.order[i].at - s.order[i-1].at; gap >= int64(s.opts.StallThreshold) {
			s.stalls = append(s.stalls, stall{gap: gap, at: i})
		}
	}
	slices.SortStableFunc(s.stalls, func(a, b stall) int { return cmp.Compare(b.gap, a.gap) })
	for _, st := range s.stalls[:min(len(s.stalls), s.opts.KeepStalls)] {
		for _, e := range s.order[st.at-1 : st.at+1] {
			if c.Classes[e.index] != dialect.EventOther { // two stalls may share an event
				c.Classes[e.index] = dialect.EventOther
				c.Events--
			}
		}
	}
}

func collapsed(classes []dialect.EventClass, i int) bool {
	return i < len(classes) && classes[i] != dialect.EventOther
}

// dropAll removes all events at once when the summary replaced every one, which is the usual case: to walk over them once more and reset
// each would take a tenth of the time of a span of 100 chunks.
func (f *Found) dropAll(rec *Record) bool {
	events := f.Span.Events()
	if rec.EventsCollapsed == 0 || rec.EventsCollapsed != int64(events.Len()) {
		return false
	}
	events.MoveAndAppendTo(ptrace.NewSpanEventSlice())
	return true
}

// dropCollapsed removes the events that the summary replaced.
func dropCollapsed(f *Found, rec *Record) {
	if rec.EventsCollapsed == 0 || f.dropAll(rec) {
		return
	}
	i := -1
	f.Span.Events().RemoveIf(func(ptrace.SpanEvent) bool {
		i++
		return collapsed(f.Evidence.Chunks.Classes, i)
	})
}

// divideEvents removes the events that the summary replaced and moves those from the first chunk on to the stream span.
func divideEvents(f *Found, rec *Record, t ptrace.Span) {
	if f.dropAll(rec) {
		return
	}
	i := -1
	f.Span.Events().RemoveIf(func(e ptrace.SpanEvent) bool {
		i++
		if collapsed(f.Evidence.Chunks.Classes, i) {
			return true
		}
		if f.Evidence.EventTime(e) < f.Decision.First {
			return false
		}
		e.MoveTo(t.Events().AppendEmpty())
		return true
	})
}
