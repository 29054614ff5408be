// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamspan

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// fullCommon are the attributes that every part of fullSpan's stream has: f = 0.5 s of 3 s.
var fullCommon = map[string]any{
	"stream.dialect": "openllmetry", "stream.first_chunk.source": chunkName, "stream.outcome": "error",
	"stream.time_to_first_chunk": 0.5, "stream.duration": 2.5,
}

// fullCadence is the summary of chunks at 0.5, 0.7, 2.0 and 2.5 s: gaps 0.2, 1.3, 0.5, 9 tokens. Jitter: 1.1/16, then
// + (0.8 − 1.1/16)/16. k = 9/4 tokens a chunk, so that D = 0.225 s: 0.2 is met (slack 0.025), 1.3 and 0.5 are not. The reader takes
// 0.225 s a chunk: c_4 − c_1 − 3·0.225 = 1.325 and c_3 − c_1 − 2·0.225 = 1.05, of which the greater was waited. Indexes of scale 5:
// the bucket of v is ceil(32·log2 v) − 1: 0.2 → −75, 0.5 → −33, 1.3 → 12.
var fullCadence = map[string]any{
	"stream.cadence.quality": "exact", "stream.chunk.count": int64(4), "stream.tail": 0.5,
	"stream.chunk.gap.mean": 2.0 / 3, "stream.chunk.gap.p50": 0.5, "stream.chunk.gap.p95": 1.22, "stream.chunk.gap.p99": 1.284, "stream.chunk.gap.max": 1.3,
	"stream.chunk.gap.stddev": 0.46427960923947065, "stream.chunk.gap.jitter": 0.068750 + (0.8-0.06875)/16,
	"stream.chunk.gap.histogram": []any{int64(5), int64(0), int64(-75), int64(1), int64(-33), int64(1), int64(12), int64(1)},
	"stream.stall.count":         int64(1), "stream.stall.duration": 1.3, "stream.stall.offset": 0.2,
	"stream.chunk.rate.peak": 2.0, "stream.token.count": int64(9), "stream.token.source": "gen_ai.usage.output_tokens",
	"stream.chunk.tokens": 2.25, "stream.token.rate": 4.0, "stream.fluidity": 1.0 / 3, "stream.reader.wait": 1.325,
}

func merged(parts ...map[string]any) map[string]any {
	out := map[string]any{}
	for _, p := range parts {
		maps.Copy(out, p)
	}
	return out
}

// TestSplitShape holds the table of the split, field by field.
func TestSplitShape(t *testing.T) {
	td, _ := fullSpan()
	before := ptrace.NewTraces()
	td.CopyTo(before)
	s := spansIn(before)[0]

	applied := apply(t, td, options(ModeSplit))
	require.Equal(t, []Applied{{Result: ResultSplit, Collapsed: 2}}, applied)
	require.Len(t, spansIn(td), 2)
	r, st := spansIn(td)[0], spansIn(td)[1]

	assert.Equal(t, s.SpanID(), r.SpanID())
	assert.Equal(t, s.TraceID(), st.TraceID())
	assert.NotEqual(t, s.SpanID(), st.SpanID())
	assert.False(t, st.SpanID().IsEmpty())
	assert.Equal(t, s.ParentSpanID(), r.ParentSpanID())
	assert.Equal(t, r.SpanID(), st.ParentSpanID())
	assert.Equal(t, "openai.chat", r.Name())
	assert.Equal(t, "openai.chat stream", st.Name())
	assert.Equal(t, ptrace.SpanKindClient, r.Kind())
	assert.Equal(t, ptrace.SpanKindInternal, st.Kind())
	assert.Equal(t, [2]pcommon.Timestamp{t0, at(500 * ms)}, [2]pcommon.Timestamp{r.StartTimestamp(), r.EndTimestamp()})
	assert.Equal(t, [2]pcommon.Timestamp{at(500 * ms), at(3 * time.Second)}, [2]pcommon.Timestamp{st.StartTimestamp(), st.EndTimestamp()})

	assertRaw(t, merged(fullCommon, map[string]any{
		"gen_ai.operation.name": "chat", "gen_ai.system": "openai", "gen_ai.request.model": "gpt-4o-mini", "http.route": "/chat",
		"gen_ai.is_streaming": true, "gen_ai.usage.output_tokens": int64(9),
		"stream.phase":          "request",
		"gen_ai.request.stream": true, "gen_ai.response.time_to_first_chunk": 0.5,
	}), r.Attributes())
	assertRaw(t, merged(fullCommon, fullCadence, map[string]any{
		"stream.phase": "stream", "stream.chunk.events_collapsed": int64(2),
		"stream.source.kind": "SPAN_KIND_CLIENT", "stream.source.operation": "chat",
		"gen_ai.request.model": "gpt-4o-mini", "http.route": "/chat",
		"error.type": "ConnectionError",
	}), st.Attributes())

	// The stall is 0.7 → 2.0: its two events stay.
	assert.Equal(t, []eventAt{{"sent", 10 * ms}, {"late entry", 20 * ms}}, eventsOf(r))
	assert.Equal(t, []eventAt{{chunkName, 700 * ms}, {"log", time.Second}, {chunkName, 2 * time.Second}, {"exception", 2900 * ms}}, eventsOf(st))

	assert.Equal(t, ptrace.StatusCodeUnset, r.Status().Code())
	assert.Empty(t, r.Status().Message())
	assert.Equal(t, ptrace.StatusCodeError, st.Status().Code())
	assert.Equal(t, "connection reset", st.Status().Message())

	assert.Equal(t, 1, r.Links().Len())
	assert.Equal(t, 0, st.Links().Len())
	assert.Equal(t, "ot=th:c,vendor=1", r.TraceState().AsRaw())
	assert.Equal(t, "ot=th:c,vendor=1", st.TraceState().AsRaw())
	assert.Equal(t, uint32(0x301), r.Flags())
	assert.Equal(t, uint32(0x101), st.Flags(), "the trace flags; the parent is known to be local")
	assert.Equal(t, [3]uint32{3, 0, 5}, [3]uint32{r.DroppedAttributesCount(), r.DroppedEventsCount(), r.DroppedLinksCount()})
	assert.Equal(t, [3]uint32{}, [3]uint32{st.DroppedAttributesCount(), st.DroppedEventsCount(), st.DroppedLinksCount()})
}

// TestAnnotateShape: the span keeps its shape and gets the summary of the stream span.
func TestAnnotateShape(t *testing.T) {
	td, _ := fullSpan()
	require.Equal(t, []Applied{{Result: ResultAnnotated, Collapsed: 2}}, apply(t, td, options(ModeAnnotate)))
	require.Len(t, spansIn(td), 1)
	s := spansIn(td)[0]
	assert.Equal(t, at(3*time.Second), s.EndTimestamp())
	assert.Equal(t, ptrace.StatusCodeError, s.Status().Code())
	assertRaw(t, merged(fullCommon, fullCadence, map[string]any{
		"gen_ai.operation.name": "chat", "gen_ai.system": "openai", "gen_ai.request.model": "gpt-4o-mini", "http.route": "/chat",
		"gen_ai.is_streaming": true, "gen_ai.usage.output_tokens": int64(9), "error.type": "ConnectionError",
		"stream.phase": "whole", "stream.chunk.events_collapsed": int64(2),
		"gen_ai.request.stream": true, "gen_ai.response.time_to_first_chunk": 0.5,
	}), s.Attributes())
	assert.Len(t, eventsOf(s), 6)
}

// TestNestShape: the span keeps its shape and the two phases lie below it.
func TestNestShape(t *testing.T) {
	td, _ := fullSpan()
	require.Equal(t, []Applied{{Result: ResultEnveloped, Collapsed: 2}}, apply(t, td, options(ModeNest)))
	require.Len(t, spansIn(td), 3)
	s, r, st := spansIn(td)[0], spansIn(td)[1], spansIn(td)[2]
	for _, part := range []ptrace.Span{r, st} {
		assert.Equal(t, s.SpanID(), part.ParentSpanID())
		assert.Equal(t, s.TraceID(), part.TraceID())
		assert.Equal(t, ptrace.SpanKindInternal, part.Kind())
		assert.Equal(t, uint32(0x101), part.Flags())
		assert.Equal(t, "ot=th:c,vendor=1", part.TraceState().AsRaw())
		assert.Equal(t, 0, part.Events().Len())
		assert.Equal(t, 0, part.Links().Len())
	}
	assert.NotEqual(t, r.SpanID(), st.SpanID())
	assert.NotEqual(t, s.SpanID(), r.SpanID())
	assert.Equal(t, "openai.chat", r.Name())
	assert.Equal(t, "openai.chat stream", st.Name())
	assert.Equal(t, t0, r.StartTimestamp())
	assert.Equal(t, at(500*ms), r.EndTimestamp())
	assert.Equal(t, at(500*ms), st.StartTimestamp())
	assert.Equal(t, at(3*time.Second), st.EndTimestamp())
	assert.Equal(t, at(3*time.Second), s.EndTimestamp())
	assert.Equal(t, ptrace.StatusCodeError, s.Status().Code())
	assert.Len(t, eventsOf(s), 6)

	v, _ := s.Attributes().Get("stream.phase")
	assert.Equal(t, "envelope", v.Str())
	v, _ = r.Attributes().Get("stream.phase")
	assert.Equal(t, "request", v.Str())
	assertRaw(t, merged(fullCommon, fullCadence, map[string]any{
		"stream.phase": "stream", "stream.chunk.events_collapsed": int64(2),
		"stream.source.kind": "SPAN_KIND_CLIENT", "stream.source.operation": "chat",
		"gen_ai.request.model": "gpt-4o-mini", "http.route": "/chat",
	}), st.Attributes())
	assertRaw(t, merged(fullCommon, map[string]any{"stream.phase": "request", "gen_ai.request.model": "gpt-4o-mini", "http.route": "/chat"}), r.Attributes())
}

// TestDerivedIDs: a batch that is sent again gives the same ids again, another span another one, and a part never takes the span's own.
func TestDerivedIDs(t *testing.T) {
	ids := func(change func(ptrace.Span)) [2]pcommon.SpanID {
		td, s := fullSpan()
		change(s)
		apply(t, td, options(ModeNest))
		return [2]pcommon.SpanID{spansIn(td)[1].SpanID(), spansIn(td)[2].SpanID()}
	}
	same := func(ptrace.Span) {}
	seen := map[pcommon.SpanID]bool{}
	for _, change := range []func(ptrace.Span){
		same,
		func(s ptrace.Span) { s.SetSpanID(pcommon.SpanID{1}) },
		func(s ptrace.Span) { s.SetTraceID(pcommon.TraceID{1}) },
	} {
		for _, id := range ids(change) {
			assert.False(t, seen[id], "an id came twice")
			seen[id] = true
		}
	}
	assert.Equal(t, ids(same), ids(func(s ptrace.Span) { s.Attributes().PutStr("x", "y"); s.SetName("other") }), "they hang on the ids alone")

	// The hash is fixed: XXH64 of trace id, span id and one letter. The values are those of another implementation. Ids that were written
	// before an update must not change with it.
	pinned := ids(same)
	assert.Equal(t, "1722c20a7260417f", pinned[0].String())
	assert.Equal(t, "63bc309236f3fab3", pinned[1].String())
	split, _ := fullSpan()
	apply(t, split, options(ModeSplit))
	nested, _ := fullSpan()
	apply(t, nested, options(ModeNest))
	assert.Equal(t, spansIn(nested)[2].SpanID(), spansIn(split)[1].SpanID(), "the same stream span in every mode")
}

// TestErrorMoves: error.type goes where the failure belongs.
func TestErrorMoves(t *testing.T) {
	td, s := fullSpan()
	s.Attributes().Remove("error.type")
	s.Status().SetCode(ptrace.StatusCodeOk)
	s.Status().SetMessage("")
	apply(t, td, options(ModeSplit))
	r, st := spansIn(td)[0], spansIn(td)[1]
	assert.Equal(t, ptrace.StatusCodeUnset, r.Status().Code())
	assert.Equal(t, ptrace.StatusCodeOk, st.Status().Code())
	_, ok := st.Attributes().Get("error.type")
	assert.False(t, ok)

	// Failed before the first chunk: the span is not split and keeps its status.
	td, s = fullSpan()
	s.Events().RemoveIf(func(e ptrace.SpanEvent) bool { return e.Name() == chunkName })
	applied := apply(t, td, options(ModeSplit))
	assert.Equal(t, []Applied{{Result: ResultWhole, Reason: "failed_before_first_chunk"}}, applied)
	require.Len(t, spansIn(td), 1)
	assert.Equal(t, ptrace.StatusCodeError, spansIn(td)[0].Status().Code())
	v, ok := spansIn(td)[0].Attributes().Get("error.type")
	require.True(t, ok)
	assert.Equal(t, "ConnectionError", v.Str())
}

// TestCopyAttributes: what is listed is copied with its type, what is not there is not made up.
func TestCopyAttributes(t *testing.T) {
	td, s := fullSpan()
	s.Attributes().PutInt("server.port", 443)
	s.Attributes().PutEmptySlice("list").AppendEmpty().SetStr("a")
	opts := options(ModeSplit)
	opts.CopyAttributes = []string{"server.port", "list", "missing"}
	opts.Suffix = ""
	apply(t, td, opts)
	st := spansIn(td)[1]
	assert.Equal(t, "openai.chat", st.Name())
	raw := st.Attributes().AsRaw()
	assert.Equal(t, int64(443), raw["server.port"])
	assert.Equal(t, []any{"a"}, raw["list"])
	assert.NotContains(t, raw, "missing")
	assert.NotContains(t, raw, "gen_ai.request.model")
	assert.Contains(t, spansIn(td)[0].Attributes().AsRaw(), "list", "copied, not moved")
}

// TestConventionFillIn: GenAI spans get the convention's attributes where they are absent; other spans do not.
func TestConventionFillIn(t *testing.T) {
	td, s := fullSpan()
	s.Attributes().PutDouble(ttfcKey, 0.6)
	s.Attributes().PutStr("gen_ai.request.stream", "True")
	apply(t, td, options(ModeSplit))
	raw := spansIn(td)[0].Attributes().AsRaw()
	assert.InDelta(t, 0.6, raw[ttfcKey], 0)
	assert.Equal(t, "True", raw["gen_ai.request.stream"], "what the instrumentation wrote stays")

	td, s = fullSpan()
	s.Attributes().Clear()
	s.Attributes().PutStr("rpc.system", "grpc")
	for _, e := range s.Events().All() {
		if e.Name() == chunkName {
			e.SetName("Inbound message")
		}
	}
	apply(t, td, options(ModeSplit))
	raw = spansIn(td)[0].Attributes().AsRaw()
	assert.NotContains(t, raw, ttfcKey)
	assert.NotContains(t, raw, "gen_ai.request.stream")
}

// TestKeptStalls: the events around the longest stalls stay, the first of equals first, shared ones once; the array's order is kept.
func TestKeptStalls(t *testing.T) {
	chunks := []time.Duration{0, 1, 3, 4, 5, 7, 10, 11} // gaps 1 2 1 1 2 3 1, in s
	for _, tt := range []struct {
		keep int
		want []time.Duration
	}{
		{0, nil},
		{1, []time.Duration{7, 10}},
		{2, []time.Duration{1, 3, 7, 10}},
		{3, []time.Duration{1, 3, 5, 7, 10}},
		{4, []time.Duration{0, 1, 3, 5, 7, 10}},
		{99, chunks},
	} {
		td := ptrace.NewTraces()
		s := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		s.SetTraceID(pcommon.TraceID{1})
		s.SetSpanID(pcommon.SpanID{1})
		s.SetStartTimestamp(t0)
		s.SetEndTimestamp(at(20 * time.Second))
		for i := range chunks {
			addEvent(s, chunkName, chunks[(i*3)%len(chunks)]*time.Second) // out of order
		}
		opts := options(ModeSplit)
		opts.KeepStalls = tt.keep
		applied := apply(t, td, opts)
		assert.Equal(t, int64(len(chunks)-len(tt.want)), applied[0].Collapsed)
		var got []time.Duration
		for _, e := range eventsOf(spansIn(td)[1]) {
			got = append(got, e.at/time.Second)
		}
		var want []time.Duration
		for i := range chunks {
			for _, w := range tt.want {
				if w == chunks[(i*3)%len(chunks)] {
					want = append(want, w)
				}
			}
		}
		assert.Equal(t, want, got, "keep %d", tt.keep)
	}
}

// TestNonsenseIsNoStall: a chunk event whose stamp lies far outside its span makes no stall of decades and takes no place among those kept.
func TestNonsenseIsNoStall(t *testing.T) {
	td, s := fullSpan()
	s.Attributes().PutDouble(ttfcKey, 0.5)
	addEvent(s, chunkName, 0).SetTimestamp(0)
	opts := options(ModeSplit)
	opts.KeepStalls = 1
	apply(t, td, opts)
	assert.Equal(t, []eventAt{{chunkName, 700 * ms}, {"log", time.Second}, {chunkName, 2 * time.Second}, {"exception", 2900 * ms}}, eventsOf(spansIn(td)[1]))
}

// TestTruncatedCadence: when an SDK dropped events and not only chunks are left, how many chunks are missing is not known; that the
// cadence is of a window is.
func TestTruncatedCadence(t *testing.T) {
	td, s := fullSpan()
	s.SetDroppedEventsCount(40)
	s.Attributes().PutDouble(ttfcKey, 0.4)
	apply(t, td, options(ModeSplit))
	raw := spansIn(td)[1].Attributes().AsRaw()
	assert.Equal(t, "partial", raw["stream.cadence.quality"])
	assert.Equal(t, int64(4), raw["stream.chunk.count"])
	for _, key := range []string{"stream.head_burst", "stream.fluidity", "stream.reader.wait", "stream.chunk.rate.peak", "stream.tail"} {
		assert.NotContains(t, raw, key)
	}
	assert.InDelta(t, 8/2.6, raw["stream.token.rate"], 1e-12, "from t1 − f")
}

// TestMeanCadence: without instants a mean that the instrumentation worked out stands in for the gaps' mean, and for nothing else.
func TestMeanCadence(t *testing.T) {
	td, s := fullSpan()
	s.Events().RemoveIf(func(e ptrace.SpanEvent) bool { return e.Name() == chunkName })
	s.Attributes().PutDouble(ttfcKey, 0.5)
	s.Attributes().PutDouble("gen_ai.client.operation.time_per_output_chunk", 0.08)
	apply(t, td, options(ModeSplit))
	assertRaw(t, merged(fullCommon, map[string]any{
		"stream.phase": "stream", "stream.first_chunk.source": ttfcKey, "stream.cadence.quality": "mean", "stream.chunk.gap.mean": 0.08,
		"stream.token.count": int64(9), "stream.token.source": "gen_ai.usage.output_tokens", "stream.token.rate": 8 / 2.5,
		"stream.source.kind": "SPAN_KIND_CLIENT", "stream.source.operation": "chat", "error.type": "ConnectionError",
		"gen_ai.request.model": "gpt-4o-mini", "http.route": "/chat",
	}), spansIn(td)[1].Attributes())
}
