// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/internal/cadence"
	"github.com/otelcol-stream/otelcol-stream/internal/dialect"
	"github.com/otelcol-stream/otelcol-stream/internal/fold"
	"github.com/otelcol-stream/otelcol-stream/internal/streamspan"
)

// join brings a parent and its chunk spans together: those that came before, those of its own batch, or both.
type join struct {
	key    fold.Key
	span   ptrace.Span
	stream *fold.Stream // nil when no chunk span came before
	batch  *fold.Batch  // nil when none is in the batch
	limits *fold.Limits
	// duplicate says that the chunk spans of the batch are among those that came before.
	duplicate bool
	// streams says that the parent streams, so that the chunk spans are folded into it.
	streams bool
}

// joins are the parents of one batch that have chunk spans.
type joins struct {
	byKey map[fold.Key]*join
	order []*join
}

func (j *joins) of(key fold.Key) *join { return j.byKey[key] }

func (j *joins) add(one *join) {
	if j.byKey == nil {
		j.byKey = map[fold.Key]*join{}
	}
	j.byKey[one.key] = one
	j.order = append(j.order, one)
}

func (j *joins) reset() {
	clear(j.byKey)
	clear(j.order)
	j.order = j.order[:0]
}

// find finds the streaming spans of td, the chunk spans of these parents among the evidence.
func (j *joins) find(finder *streamspan.Finder, td ptrace.Traces) []streamspan.Found {
	if len(j.order) == 0 {
		return finder.Find(td)
	}
	finder.Folded = j.folded
	found := finder.Find(td)
	finder.Folded = nil
	for i := range found {
		if found[i].Folded != nil {
			j.of(keyOf(found[i].Span)).streams = true
		}
	}
	return found
}

func keyOf(span ptrace.Span) fold.Key { return fold.Key{Trace: span.TraceID(), Parent: span.SpanID()} }

func (j *joins) folded(span ptrace.Span) *streamspan.Folded {
	one := j.of(keyOf(span))
	// A second span with the same ids is another one.
	if one == nil || one.span != span {
		return nil
	}
	totals, instants, beyond := one.view()
	if totals.Seen == 0 {
		return nil
	}
	return &streamspan.Folded{Chunks: totals.Chunks(span, instants), Beyond: beyond}
}

func (j *join) view() (dialect.ChunkTotals, []int64, *cadence.Beyond) {
	with := j.batch
	if j.duplicate {
		with = nil
	}
	st := j.stream
	if st == nil {
		st = &fold.Stream{}
	}
	totals := st.Totals
	if with != nil {
		totals.Merge(&with.Totals)
	}
	instants, beyond := st.View(with, j.limits.MaxChunks, j.limits.StallThreshold)
	return totals, instants, beyond
}

// settle counts what became of the chunk spans that came before, and lets those of a parent that is no stream go.
func (j *join) settle(finder *streamspan.Finder, out *spansByOrigin, suffix string, counts *chunkCounts) {
	if j.stream == nil || j.stream.Totals.Seen == 0 {
		return
	}
	if !j.streams {
		out.put(finder, j.stream, suffix, counts)
		return
	}
	counts.spans[spanFolded] += j.stream.Totals.Seen
	counts.streams[streamJoined]++
}

// spansByOrigin appends spans to td, each to a resource and a scope like those that it came from.
type spansByOrigin struct {
	td       ptrace.Traces
	byOrigin map[*fold.Origin]ptrace.SpanSlice
}

func (s *spansByOrigin) spans(o *fold.Origin) ptrace.SpanSlice {
	spans, ok := s.byOrigin[o]
	if !ok {
		if s.byOrigin == nil {
			s.byOrigin = map[*fold.Origin]ptrace.SpanSlice{}
		}
		spans = o.Spans(s.td)
		s.byOrigin[o] = spans
	}
	return spans
}

// put appends a stream that no parent will take: the summary of one that is folded, else its chunk spans.
func (s *spansByOrigin) put(finder *streamspan.Finder, st *fold.Stream, suffix string, counts *chunkCounts) {
	if !st.Folded() {
		st.AppendKept(s.spans)
		counts.spans[spanNoStream] += st.Totals.Seen
		return
	}
	totals := st.Totals
	instants, beyond := st.View(nil, 0, 0)
	finder.PutChunkStream(s.spans(st.Origin()).AppendEmpty(), &streamspan.ChunkStream{
		Trace: st.Key.Trace, Parent: st.Key.Parent,
		Name: st.Name, TraceState: st.TraceState, Flags: st.Flags,
		Totals: &totals, Instants: instants, Beyond: beyond,
	}, suffix)
	counts.spans[spanFolded] += st.Totals.Seen
}
