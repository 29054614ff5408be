// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"math/rand/v2"

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

// reservoir keeps a uniform sample of the streams since the last export: Algorithm R (Vitter, "Random Sampling with a Reservoir", 1985),
// which is what the SDK's fixed-size reservoir amounts to. The SDK's own takes the span from a context, one measurement at a time. Here
// one decision serves all metrics of a series, so that the gap, the stall and the rate of a stream are found under the same trace.
type reservoir struct {
	kept []exemplar
	seen uint64
}

// offer considers a stream.
func (r *reservoir) offer(size int, span ptrace.Span, at pcommon.Timestamp, v *values) {
	id := span.TraceID()
	if size == 0 || id.IsEmpty() {
		return
	}
	r.seen++
	slot := len(r.kept)
	if slot < size {
		r.kept = append(r.kept, exemplar{})
	} else if drawn := rand.Uint64N(r.seen); drawn < uint64(size) {
		slot = int(drawn)
	} else {
		return
	}
	r.kept[slot] = exemplar{id, span.SpanID(), at, *v}
}

func (r *reservoir) reset() {
	r.kept, r.seen = r.kept[:0], 0
}

// merge brings back what a refused export held, as far as there is room.
func (r *reservoir) merge(o *reservoir, size int) {
	r.seen += o.seen
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
