// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/internal/spanlaws"
)

const (
	testStart = pcommon.Timestamp(1_780_000_000_000_000_000)
	ttfcKey   = "gen_ai.response.time_to_first_chunk"
)

// newSpan returns a batch of one client span of the given duration, without evidence.
func newSpan(d time.Duration) (ptrace.Traces, ptrace.Span) {
	td := ptrace.NewTraces()
	s := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	s.SetName("chat")
	s.SetKind(ptrace.SpanKindClient)
	s.SetTraceID(pcommon.TraceID{1})
	s.SetSpanID(pcommon.SpanID{2})
	s.SetStartTimestamp(testStart)
	s.SetEndTimestamp(testStart + pcommon.Timestamp(d))
	return td, s
}

// TestBadInputPassesUnchanged: what makes no sense leaves as it came and is counted by its reason.
func TestBadInputPassesUnchanged(t *testing.T) {
	ttfc := func(v float64) func(ptrace.Span) {
		return func(s ptrace.Span) { s.Attributes().PutDouble(ttfcKey, v) }
	}
	ofType := func(set func(pcommon.Value)) func(ptrace.Span) {
		return func(s ptrace.Span) { set(s.Attributes().PutEmpty(ttfcKey)) }
	}
	for _, tt := range []struct {
		name           string
		change         func(ptrace.Span)
		result, reason string
	}{
		{"no trace id", func(s ptrace.Span) { s.SetTraceID(pcommon.TraceID{}) }, "refused", "zero_id"},
		{"no span id", func(s ptrace.Span) { s.SetSpanID(pcommon.SpanID{}) }, "refused", "zero_id"},
		{"end before start", func(s ptrace.Span) { s.SetEndTimestamp(testStart - 1) }, "refused", "end_before_start"},
		{"end at the limit of uint64", func(s ptrace.Span) { s.SetEndTimestamp(math.MaxUint64) }, "refused", "time_out_of_range"},
		{"both beyond int64", func(s ptrace.Span) {
			s.SetStartTimestamp(math.MaxInt64 + 1)
			s.SetEndTimestamp(math.MaxInt64 + 2_000_000_000)
		}, "refused", "time_out_of_range"},
		{"the sum of start and value beyond int64", func(s ptrace.Span) {
			s.SetStartTimestamp(math.MaxInt64 - 2_000_000_000)
			s.SetEndTimestamp(math.MaxInt64)
			s.Attributes().PutDouble(ttfcKey, 4e9)
		}, "refused", "first_chunk_out_of_span"},
		{"NaN", ttfc(math.NaN()), "refused", "invalid_first_chunk"},
		{"+Inf", ttfc(math.Inf(1)), "refused", "invalid_first_chunk"},
		{"-Inf", ttfc(math.Inf(-1)), "refused", "invalid_first_chunk"},
		{"negative", ttfc(-0.3), "refused", "invalid_first_chunk"},
		{"more seconds than an int64 holds", ttfc(1e300), "refused", "invalid_first_chunk"},
		{"beyond the end", ttfc(2.5), "refused", "first_chunk_out_of_span"},
		{"text that is no number", ofType(func(v pcommon.Value) { v.SetStr("soon") }), "refused", "invalid_first_chunk"},
		{"text NaN", ofType(func(v pcommon.Value) { v.SetStr("NaN") }), "refused", "invalid_first_chunk"},
		{"negative duration as text", ofType(func(v pcommon.Value) { v.SetStr("-3ms") }), "refused", "invalid_first_chunk"},
		{"a boolean", ofType(func(v pcommon.Value) { v.SetBool(true) }), "refused", "invalid_first_chunk"},
		{"a map", ofType(func(v pcommon.Value) { v.SetEmptyMap().PutDouble("v", 0.3) }), "refused", "invalid_first_chunk"},
		{"a slice", ofType(func(v pcommon.Value) { v.SetEmptySlice().AppendEmpty().SetDouble(0.3) }), "refused", "invalid_first_chunk"},
		{"bytes", ofType(func(v pcommon.Value) { v.SetEmptyBytes().FromRaw([]byte("0.3")) }), "refused", "invalid_first_chunk"},
		{"nothing", ofType(func(pcommon.Value) {}), "refused", "invalid_first_chunk"},
		{"a flag that is a map", func(s ptrace.Span) { s.Attributes().PutEmptyMap("gen_ai.request.stream") }, "not_streaming", ""},
		{"a flag that is a number", func(s ptrace.Span) { s.Attributes().PutInt("gen_ai.request.stream", 1) }, "not_streaming", ""},
		{"a marker before the start", func(s ptrace.Span) { event(s, "First Token Stream Event", -5*ms) }, "refused", "first_chunk_out_of_span"},
		{"a marker at the limit of uint64", func(s ptrace.Span) {
			event(s, "First Token Stream Event", 0)
			s.Events().At(0).SetTimestamp(math.MaxUint64)
		}, "refused", "first_chunk_out_of_span"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t)
			td, s := newSpan(2 * time.Second)
			tt.change(s)
			assert.Equal(t, spanlaws.Marshal(td), spanlaws.Marshal(h.send(t, td)))
			h.assertSpans(t, spanCount{tt.result, tt.reason, 1})
		})
	}
}

func event(s ptrace.Span, name string, at time.Duration) ptrace.SpanEvent {
	e := s.Events().AppendEmpty()
	e.SetName(name)
	e.SetTimestamp(pcommon.Timestamp(int64(s.StartTimestamp()) + int64(at)))
	return e
}

// TestSensePassesWithNonsenseBesideIt: other spans of the batch are not touched by a bad one, and a flagged span keeps its summary when
// its instant is nonsense.
func TestSensePassesWithNonsenseBesideIt(t *testing.T) {
	h := newHarness(t)
	td, s := newSpan(2 * time.Second)
	s.Attributes().PutBool("gen_ai.request.stream", true)
	s.Attributes().PutDouble(ttfcKey, math.NaN())
	good := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().AppendEmpty()
	s.CopyTo(good)
	good.SetSpanID(pcommon.SpanID{3})
	good.Attributes().PutDouble(ttfcKey, 0.5)

	out := h.send(t, td)
	require.Equal(t, 3, out.SpanCount())
	whole := spansOf(out)[0]
	assertAttrs(t, whole, attrs{"stream.phase": "whole", "stream.time_to_first_chunk": absent{}})
	v, _ := whole.Attributes().Get(ttfcKey)
	assert.True(t, math.IsNaN(v.Double()), "what came in stays")
	assertAttrs(t, spansOf(out)[1], attrs{"stream.phase": "request", "stream.time_to_first_chunk": 0.5})
	h.assertSpans(t, spanCount{"whole", "invalid_first_chunk", 1}, spanCount{"split", "", 1})
}

// TestManyEvents: 100,000 chunk events on one span, 10 µs apart.
func TestManyEvents(t *testing.T) {
	const n = 100_000
	h := newHarness(t)
	td, s := newSpan(2 * time.Second)
	s.Events().EnsureCapacity(n)
	for i := range n {
		event(s, "llm.content.completion.chunk", 500*ms+time.Duration(i)*10*us)
	}
	out := h.send(t, td)
	tt := streamOf(t, out, spansOf(out)[0])
	assertAttrs(t, tt, attrs{
		"stream.chunk.count": n, "stream.chunk.events_collapsed": n, "stream.cadence.quality": "exact",
		"stream.chunk.gap.mean": 0.000_01, "stream.chunk.gap.max": 0.000_01, "stream.chunk.rate.peak": float64(n),
		"stream.tail": 2 - 0.5 - (n-1)*0.000_01,
	})
}

func TestInvalidUTF8(t *testing.T) {
	const bad = "\xff\xfe\x80"
	h := newHarness(t)
	td, s := newSpan(2 * time.Second)
	s.SetName(bad)
	s.Attributes().PutDouble(ttfcKey, 0.5)
	s.Attributes().PutStr(bad, bad)
	s.Attributes().PutStr("gen_ai.request.model", bad)
	s.Attributes().PutStr("gen_ai.response.finish_reasons", bad)
	event(s, bad, 600*ms)
	td.ResourceSpans().At(0).ScopeSpans().At(0).Scope().SetName(bad)
	out := h.send(t, td)
	r := spansOf(out)[0]
	tt := streamOf(t, out, r)
	assert.Equal(t, bad+" stream", tt.Name())
	assertAttrs(t, r, attrs{bad: bad})
	assertAttrs(t, tt, attrs{"gen_ai.request.model": bad})
	assert.Equal(t, bad, tt.Events().At(0).Name())
}

// TestTimesAtTheLimits: spans at the ends of what an int64 of nanoseconds holds are split like others.
func TestTimesAtTheLimits(t *testing.T) {
	for _, start := range []pcommon.Timestamp{0, math.MaxInt64 - 2_000_000_000} {
		t.Run(start.String(), func(t *testing.T) {
			h := newHarness(t)
			td, s := newSpan(0)
			s.SetStartTimestamp(start)
			s.SetEndTimestamp(start + 2_000_000_000)
			event(s, "llm.content.completion.chunk", 500*ms)
			event(s, "llm.content.completion.chunk", 1500*ms)
			out := h.send(t, td)
			assertAttrs(t, streamOf(t, out, spansOf(out)[0]), attrs{
				"stream.time_to_first_chunk": 0.5, "stream.duration": 1.5, "stream.chunk.gap.max": 1.0, "stream.tail": 0.5,
			})
		})
	}
}

// TestClockSkew: a first chunk up to 1 ms outside its span is moved to the edge and counted, one beyond that is rejected.
func TestClockSkew(t *testing.T) {
	const length = 2 * time.Second
	for _, tt := range []struct {
		at   time.Duration
		want time.Duration // -1: rejected
		skew bool
	}{
		{-ms - 1, -1, false},
		{-ms, 0, true},
		{-1, 0, true},
		{0, 0, false},
		{length - 10*ms, length - 10*ms, false},
	} {
		t.Run(tt.at.String(), func(t *testing.T) {
			h := newHarness(t)
			td, s := newSpan(length)
			event(s, "First Token Stream Event", tt.at)
			out := h.send(t, td)
			if tt.want < 0 {
				h.assertSpans(t, spanCount{"refused", "first_chunk_out_of_span", 1})
				return
			}
			r := spansOf(out)[0]
			assertTimes(t, s, r, 0, tt.want)
			h.assertSpans(t, spanCount{"split", "", 1})
			h.assertClamped(t, tt.skew)
		})
	}
	for _, tt := range []struct {
		seconds float64
		ok      bool
	}{
		{2, true}, {2.001, true}, {2.001_000_001, false},
	} {
		t.Run(fmt.Sprint(tt.seconds), func(t *testing.T) {
			h := newHarness(t)
			td, s := newSpan(length)
			s.Attributes().PutDouble(ttfcKey, tt.seconds)
			out := h.send(t, td)
			if !tt.ok {
				h.assertSpans(t, spanCount{"refused", "first_chunk_out_of_span", 1})
				return
			}
			assertTimes(t, s, streamOf(t, out, spansOf(out)[0]), length, length)
			h.assertClamped(t, tt.seconds > 2)
		})
	}
}
