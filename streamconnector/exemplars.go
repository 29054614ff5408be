// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"math"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// exemplar is a stream that a data point may point to. It holds no attributes: nothing of the span but its ids goes into a metric.
type exemplar struct {
	trace  pcommon.TraceID
	span   pcommon.SpanID
	at     pcommon.Timestamp
	values values
}

// reservoir keeps a uniform sample of the streams since the last export: Algorithm L (Li, "Reservoir-sampling algorithms of time complexity
// O(n(1 + log(N/n)))", 1994), as the SDK's fixed-size reservoir does. Once it is full, it draws how many streams to pass over, so that
// nearly all of them cost one comparison. The SDK's own takes the span from a context, one measurement at a time. Here one decision serves
// all metrics of a series, so that the gap, the stall and the rate of a stream are found under the same trace.
type reservoir struct {
	kept []exemplar
	seen uint64
	next uint64  // the number of the stream that is kept next, counted like seen
	w    float64 // the largest of the random keys of those kept
}

// offer considers a stream.
func (r *reservoir) offer(size int, span ptrace.Span, now time.Time, v *values) {
	r.seen++
	if len(r.kept) < size || r.seen >= r.next {
		r.keep(size, span, now, v)
	}
}

func (r *reservoir) keep(size int, span ptrace.Span, now time.Time, v *values) {
	full := len(r.kept) >= size
	id := span.TraceID()
	if size == 0 || id.IsEmpty() {
		return
	}
	slot := len(r.kept)
	if full {
		slot = rand.IntN(size)
	} else {
		r.kept = append(r.kept, exemplar{})
	}
	r.kept[slot] = exemplar{id, span.SpanID(), pcommon.NewTimestampFromTime(now), *v}
	if len(r.kept) == size {
		r.skip(size)
	}
}

// skip draws the number of the stream that is kept next.
func (r *reservoir) skip(size int) {
	if r.w == 0 {
		r.w = 1
	}
	r.w *= math.Exp(math.Log(1-rand.Float64()) / float64(size))
	passed := math.Floor(math.Log(1-rand.Float64()) / math.Log1p(-r.w))
	r.next = r.seen + 1 + uint64(min(passed, 1<<62))
}

func (r *reservoir) reset() {
	*r = reservoir{kept: r.kept[:0]}
}

// merge brings back what a refused export held, as far as there is room.
func (r *reservoir) merge(o *reservoir, size int) {
	r.seen += o.seen
	r.next += o.seen
	r.kept = append(r.kept, o.kept[:min(len(o.kept), max(0, size-len(r.kept)))]...)
}

// write adds the exemplars that have the given value, no older than from and no newer than to.
func (r *reservoir) write(es pmetric.ExemplarSlice, id valueID, from, to pcommon.Timestamp) {
	for i := range r.kept {
		e := &r.kept[i]
		if v := e.values[id]; v == v { // not NaN
			x := es.AppendEmpty()
			x.SetTraceID(e.trace)
			x.SetSpanID(e.span)
			x.SetTimestamp(min(max(e.at, from), to))
			x.SetDoubleValue(v)
		}
	}
}
