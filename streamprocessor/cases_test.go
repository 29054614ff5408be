// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"

	"github.com/otelcol-stream/otelcol-stream/internal/spanlaws"
	"github.com/otelcol-stream/otelcol-stream/internal/streamspan"
	"github.com/otelcol-stream/otelcol-stream/streamprocessor/internal/metadatatest"
)

// harness is a started processor with what it sent on and what it counted.
type harness struct {
	processor.Traces

	cfg  *Config
	sink *consumertest.TracesSink
	tel  *componenttest.Telemetry
}

func newHarness(t testing.TB, set ...func(*Config)) *harness {
	t.Helper()
	h := &harness{cfg: createDefaultConfig().(*Config), sink: &consumertest.TracesSink{}, tel: componenttest.NewTelemetry()}
	for _, f := range set {
		f(h.cfg)
	}
	require.NoError(t, h.cfg.Validate())
	var err error
	h.Traces, err = NewFactory().CreateTraces(context.Background(), metadatatest.NewSettings(h.tel), h.cfg, h.sink)
	require.NoError(t, err)
	require.NoError(t, h.Start(context.Background(), componenttest.NewNopHost()))
	t.Cleanup(func() {
		require.NoError(t, h.Shutdown(context.Background()))
		require.NoError(t, h.tel.Shutdown(context.Background()))
	})
	return h
}

// send passes a batch through, checks the laws on what comes out, and returns that.
func (h *harness) send(t testing.TB, td ptrace.Traces) ptrace.Traces {
	t.Helper()
	in := ptrace.NewTraces()
	td.CopyTo(in)
	h.sink.Reset()
	require.NoError(t, h.ConsumeTraces(context.Background(), in))
	require.Len(t, h.sink.AllTraces(), 1)
	out := h.sink.AllTraces()[0]
	_, err := spanlaws.Check(td, out, h.laws())
	require.NoError(t, err)
	return out
}

func (h *harness) laws() spanlaws.Settings {
	return spanlaws.Settings{
		Mode: string(h.cfg.Mode), Suffix: h.cfg.StreamSpanSuffix, Copy: h.cfg.CopyAttributes, Keep: h.cfg.ChunkEvents.Action == actionKeep,
	}
}

func readCase(t testing.TB, name string) ptrace.Traces {
	t.Helper()
	td, err := golden.ReadTraces(filepath.Join("testdata", "cases", name+".json"))
	require.NoError(t, err)
	return td
}

func spansOf(td ptrace.Traces) []ptrace.Span {
	var out []ptrace.Span
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				out = append(out, s)
			}
		}
	}
	return out
}

// byID finds a span by the hexadecimal text of its id.
func byID(t testing.TB, td ptrace.Traces, id string) ptrace.Span {
	t.Helper()
	all := spansOf(td)
	i := slices.IndexFunc(all, func(s ptrace.Span) bool { return s.SpanID().String() == id })
	require.GreaterOrEqual(t, i, 0, "no span %s", id)
	return all[i]
}

// streamOf finds the stream span below the request span r.
func streamOf(t testing.TB, td ptrace.Traces, r ptrace.Span) ptrace.Span {
	t.Helper()
	all := spansOf(td)
	i := slices.IndexFunc(all, func(s ptrace.Span) bool {
		return s.TraceID() == r.TraceID() && s.ParentSpanID() == r.SpanID() && phaseOf(s) == streamspan.PhaseStream
	})
	require.GreaterOrEqual(t, i, 0, "no stream span below %s", r.SpanID())
	return all[i]
}

func phaseOf(s ptrace.Span) streamspan.Phase {
	v, ok := s.Attributes().Get(streamspan.AttrPhase)
	if !ok {
		return streamspan.PhaseNone
	}
	return streamspan.Phase(v.AsString())
}

type attrs map[string]any

// absent is the wanted value of an attribute that must not be there.
type absent struct{}

// tolerance covers the decimals to which the expectations are written down.
const tolerance = 5e-11

func assertAttrs(t testing.TB, s ptrace.Span, want attrs) {
	t.Helper()
	for key, w := range want {
		v, ok := s.Attributes().Get(key)
		if w == (absent{}) {
			assert.False(t, ok, "%s is there", key)
			continue
		}
		if !assert.True(t, ok, "%s is missing", key) {
			continue
		}
		switch w := w.(type) {
		case float64:
			assert.Equal(t, pcommon.ValueTypeDouble, v.Type(), key)
			assert.InDelta(t, w, v.Double(), tolerance, key)
		case int:
			assert.Equal(t, pcommon.ValueTypeInt, v.Type(), key)
			assert.Equal(t, int64(w), v.Int(), key)
		default:
			assert.Equal(t, w, v.AsRaw(), key)
		}
	}
}

// assertTimes compares a span's edges, given in nanoseconds after the start of its source.
func assertTimes(t testing.TB, source, s ptrace.Span, from, to time.Duration) {
	t.Helper()
	start := source.StartTimestamp()
	assert.Equal(t, from, time.Duration(s.StartTimestamp()-start), "start of %s", s.Name())
	assert.Equal(t, to, time.Duration(s.EndTimestamp()-start), "end of %s", s.Name())
}

func eventTimes(source, s ptrace.Span) []time.Duration {
	out := []time.Duration{}
	for _, e := range s.Events().All() {
		out = append(out, time.Duration(e.Timestamp()-source.StartTimestamp()))
	}
	return out
}

const (
	ms = time.Millisecond
	us = time.Microsecond
)

// The cases are inputs after public bug reports. What must come out is written down beside each of them in testdata/cases/*.expect.md.

func TestCase01RoleOnlyFirstChunk(t *testing.T) {
	h := newHarness(t)
	in := readCase(t, "01-role-only-first-chunk")
	out := h.send(t, in)
	s := byID(t, in, "c1cb8a2feb48d048")
	r := byID(t, out, "c1cb8a2feb48d048")
	tt := streamOf(t, out, r)

	require.Len(t, spansOf(out), 2)
	assertTimes(t, s, r, 0, 80*ms)
	assertTimes(t, s, tt, 80*ms, 600*ms)
	common := attrs{
		"stream.time_to_first_chunk": 0.080, "stream.duration": 0.520, "stream.first_chunk.source": "gen_ai.content.completion.chunk",
		"stream.dialect": "openllmetry", "stream.nested": absent{},
	}
	assertAttrs(t, r, common)
	assertAttrs(t, tt, common)
	assertAttrs(t, r, attrs{"gen_ai.request.stream": true, "gen_ai.response.time_to_first_chunk": 0.080})
	assertAttrs(t, tt, attrs{
		"stream.chunk.count": 6, "stream.cadence.quality": "exact", "stream.chunk.events_collapsed": 6,
		"stream.chunk.gap.mean": 0.100, "stream.chunk.gap.p50": 0.020, "stream.chunk.gap.p95": 0.340, "stream.chunk.gap.p99": 0.404,
		"stream.chunk.gap.max": 0.420, "stream.chunk.gap.stddev": 0.160, "stream.chunk.gap.jitter": 0.020599365234375,
		"stream.stall.count": 0, "stream.stall.duration": absent{}, "stream.stall.offset": absent{},
		"stream.head_burst": absent{}, "stream.tail": 0.020,
		"stream.chunk.rate.peak": 6.0,
		"stream.source.kind":     "SPAN_KIND_CLIENT",
		"gen_ai.system":          "openai", "gen_ai.request.model": "example-model",
		"gen_ai.request.stream": absent{}, "gen_ai.response.time_to_first_chunk": absent{},
	})
	// The value is a time to first chunk; nothing may call it a time to first token.
	for _, span := range spansOf(out) {
		for key := range span.Attributes().All() {
			assert.NotContains(t, key, "first_token")
		}
	}
}

func TestCase02TTFTOnNonStreaming(t *testing.T) {
	h := newHarness(t)
	in := readCase(t, "02-ttft-on-non-streaming")
	assert.Equal(t, spanlaws.Marshal(in), spanlaws.Marshal(h.send(t, in)))
}

func TestCase04EventLimitDroppedOldest(t *testing.T) {
	h := newHarness(t)
	in := readCase(t, "04-event-limit-dropped-oldest")
	out := h.send(t, in)
	require.Len(t, spansOf(out), 3)
	window := attrs{
		"stream.chunk.count": 300, "stream.cadence.quality": "partial", "stream.chunk.events_collapsed": 4,
		"stream.chunk.gap.mean": 0.1, "stream.chunk.gap.p50": 0.1, "stream.chunk.gap.p95": 0.1, "stream.chunk.gap.p99": 0.1,
		"stream.chunk.gap.max": 0.1, "stream.chunk.gap.stddev": 0.0, "stream.chunk.gap.jitter": 0.0, "stream.stall.count": 0,
		// A Python SDK keeps the newest, so the last chunk is known.
		"stream.tail":       0.1,
		"stream.head_burst": absent{}, "stream.fluidity": absent{}, "stream.reader.wait": absent{}, "stream.chunk.rate.peak": absent{},
		"stream.token.rate": absent{},
	}

	a := byID(t, out, "ee06eccc1a27376b")
	assertTimes(t, a, a, 0, 12*time.Second)
	assertAttrs(t, a, window)
	assertAttrs(t, a, attrs{
		"stream.phase": "whole", "stream.time_to_first_chunk": absent{}, "stream.duration": absent{}, "stream.first_chunk.source": absent{},
		"gen_ai.response.time_to_first_chunk": absent{}, "gen_ai.request.stream": true,
	})
	h.assertSpans(t, spanCount{"whole", "first_chunk_dropped", 1}, spanCount{"split", "", 1})

	b := byID(t, out, "08ee673a10f60357")
	tt := streamOf(t, out, b)
	assertTimes(t, b, b, 0, 350*ms)
	assertTimes(t, b, tt, 350*ms, 12*time.Second)
	assertAttrs(t, tt, window)
	assertAttrs(t, tt, attrs{
		"stream.first_chunk.source": "gen_ai.response.time_to_first_chunk", "stream.time_to_first_chunk": 0.35, "stream.duration": 11.65,
	})
	assert.Equal(t, uint32(296), b.DroppedEventsCount())
	assert.Zero(t, tt.DroppedEventsCount())
}

func TestCase05EventsOutOfOrder(t *testing.T) {
	h := newHarness(t)
	in := readCase(t, "05-events-out-of-order")
	out := h.send(t, in)
	r := byID(t, out, "fba2dab632fcde1d")
	tt := streamOf(t, out, r)
	assertTimes(t, r, r, 0, 100*ms)
	assertTimes(t, r, tt, 100*ms, 450*ms)
	assertAttrs(t, tt, attrs{
		"stream.time_to_first_chunk": 0.1, "stream.duration": 0.35,
		"stream.chunk.count": 5, "stream.cadence.quality": "exact", "stream.chunk.events_collapsed": 5,
		"stream.chunk.gap.mean": 0.075, "stream.chunk.gap.p50": 0.1, "stream.chunk.gap.p95": 0.1, "stream.chunk.gap.p99": 0.1,
		"stream.chunk.gap.max": 0.1, "stream.chunk.gap.stddev": 0.04330127018922193, "stream.chunk.gap.jitter": 0.0113525390625,
		"stream.tail": 0.05,
	})

	// Ordered events give the same summary.
	sorted := ptrace.NewTraces()
	in.CopyTo(sorted)
	byID(t, sorted, "fba2dab632fcde1d").Events().Sort(func(a, b ptrace.SpanEvent) bool { return a.Timestamp() < b.Timestamp() })
	assert.Equal(t, spanlaws.Marshal(out), spanlaws.Marshal(h.send(t, sorted)))
}

func TestCase06ImpossibleTimes(t *testing.T) {
	h := newHarness(t)
	in := readCase(t, "06-impossible-times")
	out := h.send(t, in)
	require.Len(t, spansOf(out), 4)

	assert.Equal(t, 1, byID(t, out, "539bef6874f26166").Events().Len())
	assertAttrs(t, byID(t, out, "539bef6874f26166"), attrs{"stream.phase": absent{}})

	b := byID(t, out, "f446492bbbaf6d8f")
	assertTimes(t, b, b, 0, 2*time.Second)
	assertAttrs(t, b, attrs{"stream.phase": "whole", "stream.time_to_first_chunk": absent{}, "gen_ai.response.time_to_first_chunk": absent{}})

	c := byID(t, out, "2e1d82f836dd12c1")
	tt := streamOf(t, out, c)
	assertTimes(t, c, c, 0, 300*ms)
	assertTimes(t, c, tt, 300*ms, 2*time.Second)
	assertAttrs(t, tt, attrs{
		"stream.first_chunk.source": "First Token Stream Event", "stream.time_to_first_chunk": 0.3, "stream.duration": 1.7,
		"stream.token.count": 86, "stream.token.rate": 50.0, "stream.token.source": "llm.token_count.completion",
		"stream.cadence.quality": "mean", "stream.chunk.count": absent{}, "stream.chunk.tokens": absent{}, "stream.tail": absent{},
		"stream.chunk.events_collapsed": absent{},
	})
	h.assertSpans(t, spanCount{"refused", "end_before_start", 1}, spanCount{"whole", "first_chunk_out_of_span", 1}, spanCount{"split", "", 1})
}

func TestCase08FlagsAndTimesAsStrings(t *testing.T) {
	h := newHarness(t)
	in := readCase(t, "08-flags-and-times-as-strings")
	out := h.send(t, in)
	require.Len(t, spansOf(out), 6)

	a := byID(t, out, "d8433d2680481c1a")
	tt := streamOf(t, out, a)
	assertTimes(t, a, a, 0, 640*ms)
	assertTimes(t, a, tt, 640*ms, 4640*ms)
	assertAttrs(t, tt, attrs{
		"stream.first_chunk.source": "langfuse.observation.completion_start_time", "stream.token.count": 120, "stream.token.rate": 29.75,
		"stream.duration": 4.0, "stream.dialect": "langfuse",
	})
	assertAttrs(t, a, attrs{
		"llm.is_streaming": "True", "gen_ai.usage.output_tokens": "120",
		"langfuse.observation.completion_start_time": `"2025-11-24T16:00:00.640000Z"`,
	})

	for _, id := range []string{"d7aeb74db2b09363", "2e8acf0c80e19f46"} {
		assertAttrs(t, byID(t, out, id), attrs{"stream.phase": absent{}})
	}

	d := byID(t, out, "f87286e8e6a4f1bb")
	tt = streamOf(t, out, d)
	assertTimes(t, d, d, 0, 512*ms)
	assertTimes(t, d, tt, 512*ms, 5112*ms)
	assertAttrs(t, d, attrs{"ttft_ms": "512", "output_tokens": "231"})
	assertAttrs(t, tt, attrs{
		"stream.first_chunk.source": "ttft_ms", "stream.token.count": 231, "stream.token.rate": 50.0, "stream.duration": 4.6,
		"stream.dialect": "claude-code", "stream.outcome": "completed",
	})
}

func TestCase09ASGIWithoutFolding(t *testing.T) {
	h := newHarness(t)
	in := readCase(t, "09-asgi-span-per-chunk")
	assert.Equal(t, spanlaws.Marshal(in), spanlaws.Marshal(h.send(t, in)))
}

func TestCase12GRPC(t *testing.T) {
	h := newHarness(t)
	in := readCase(t, "12-grpc-unary-stream-cancel")
	out := h.send(t, in)
	require.Len(t, spansOf(out), 5)

	assertAttrs(t, byID(t, out, "f04ee571833a4e52"), attrs{"stream.phase": absent{}})

	b := byID(t, out, "e67255c75bd873b0")
	tt := streamOf(t, out, b)
	assertTimes(t, b, b, 0, 40*ms)
	assertTimes(t, b, tt, 40*ms, 300*ms)
	assert.Equal(t, []time.Duration{1 * ms}, eventTimes(b, b), "the request message stays")
	assert.Empty(t, eventTimes(b, tt))
	assertAttrs(t, tt, attrs{
		"stream.chunk.count": 3, "stream.chunk.events_collapsed": 3, "stream.cadence.quality": "exact",
		"stream.chunk.gap.mean": 0.1, "stream.chunk.gap.p50": 0.1, "stream.chunk.gap.max": 0.1, "stream.chunk.gap.stddev": 0.0,
		"stream.outcome": "cancelled", "stream.tail": 0.06,
		"stream.byte.count": 360, "stream.chunk.bytes": 120.0,
		"stream.source.kind": "SPAN_KIND_CLIENT", "rpc.system": "grpc", "rpc.service": "demo.Feed", "rpc.method": "Watch",
		"stream.first_chunk.source": "message",
	})
	assert.Equal(t, ptrace.StatusCodeUnset, b.Status().Code())
	assert.Equal(t, ptrace.StatusCodeError, tt.Status().Code())
	assert.Equal(t, "context canceled", tt.Status().Message())
	assertAttrs(t, b, attrs{"gen_ai.request.stream": absent{}, "gen_ai.response.time_to_first_chunk": absent{}})

	c := byID(t, out, "fe15b3db99d12d10")
	ts := streamOf(t, out, c)
	assertTimes(t, c, c, 0, 30*ms)
	assertTimes(t, c, ts, 30*ms, 100*ms)
	assert.Equal(t, []time.Duration{1 * ms}, eventTimes(c, c))
	assertAttrs(t, ts, attrs{
		"stream.chunk.count": 2, "stream.chunk.events_collapsed": 2, "stream.chunk.gap.mean": 0.05, "stream.chunk.gap.max": 0.05,
		"stream.outcome": "completed", "stream.source.kind": "SPAN_KIND_SERVER", "stream.byte.count": 240,
	})
	for _, s := range []ptrace.Span{tt, ts} {
		assert.Equal(t, ptrace.SpanKindInternal, s.Kind())
	}
}

func TestCase14MidStreamStall(t *testing.T) {
	h := newHarness(t)
	in := readCase(t, "14-mid-stream-stall")
	out := h.send(t, in)
	r := byID(t, out, "98910ada959bfeae")
	tt := streamOf(t, out, r)
	assertTimes(t, r, r, 0, 200*ms)
	assertTimes(t, r, tt, 200*ms, 5200*ms)
	assertAttrs(t, tt, attrs{
		"stream.duration": 5.0, "stream.chunk.count": 12, "stream.cadence.quality": "exact",
		"stream.stall.count": 2, "stream.stall.duration": 4.0, "stream.stall.offset": 0.4,
		"stream.chunk.gap.mean": 4.9 / 11, "stream.chunk.gap.p50": 0.1, "stream.chunk.gap.p95": 2.0, "stream.chunk.gap.p99": 2.8,
		"stream.chunk.gap.max": 3.0, "stream.chunk.gap.stddev": 0.8478460799, "stream.chunk.gap.jitter": 0.3633017946,
		"stream.chunk.rate.peak": 5.0, "stream.chunk.events_collapsed": 8,
	})
	assert.Equal(t, []time.Duration{600 * ms, 3600 * ms, 4000 * ms, 5000 * ms}, eventTimes(r, tt), "the events around the stalls")
	assert.Empty(t, eventTimes(r, r))

	one := newHarness(t, func(c *Config) { c.ChunkEvents.KeepStalls = 1 })
	out = one.send(t, in)
	assert.Equal(t, []time.Duration{600 * ms, 3600 * ms}, eventTimes(r, streamOf(t, out, byID(t, out, "98910ada959bfeae"))), "the longest only")

	none := newHarness(t, func(c *Config) { c.ChunkEvents.KeepStalls = 0 })
	out = none.send(t, in)
	assertAttrs(t, streamOf(t, out, byID(t, out, "98910ada959bfeae")), attrs{"stream.chunk.events_collapsed": 12})

	keep := newHarness(t, func(c *Config) { c.ChunkEvents.Action = actionKeep })
	out = keep.send(t, in)
	tt = streamOf(t, out, byID(t, out, "98910ada959bfeae"))
	assertAttrs(t, tt, attrs{"stream.chunk.events_collapsed": absent{}, "stream.chunk.count": 12})
	assert.Equal(t, 12, tt.Events().Len())
}

func TestCase16SameRateSmallerChunks(t *testing.T) {
	h := newHarness(t)
	in := readCase(t, "16-same-rate-smaller-chunks")
	out := h.send(t, in)
	a := byID(t, out, "f36fc9e57df41894")
	b := byID(t, out, "cdab720eba0e25c3")
	ta, tb := streamOf(t, out, a), streamOf(t, out, b)
	for _, s := range []ptrace.Span{ta, tb} {
		assertTimes(t, a, s, 400*ms, 3300*ms)
		assertAttrs(t, s, attrs{
			"stream.token.count": 29, "stream.token.rate": 10.0, "stream.duration": 2.9, "stream.stall.count": 0,
			"stream.chunk.gap.stddev": 0.0, "stream.chunk.gap.jitter": 0.0, "stream.tail": 0.1, "stream.outcome": "unknown",
		})
	}
	// D = 0.1 s × 3.625 tokens a chunk < 0.4 s: every deadline is missed; the reader, at 10 tokens a second, waits 7 × (0.4 − 0.3625) s.
	assertAttrs(t, ta, attrs{
		"stream.chunk.count": 8, "stream.chunk.tokens": 3.625, "stream.chunk.gap.p50": 0.4, "stream.chunk.gap.max": 0.4,
		"stream.chunk.events_collapsed": 8, "stream.fluidity": 0.0, "stream.reader.wait": 0.2625, "stream.head_burst": absent{},
		"stream.chunk.rate.peak": 3.0,
	})
	// One token every 0.1 s meets the deadline of 0.1 s exactly, and the reader is never kept waiting. In the first 0.2 s come 2 of 28
	// chunks, in 2.8 s all: (2/28) / (0.2/2.8) = 1.
	assertAttrs(t, tb, attrs{
		"stream.chunk.count": 29, "stream.chunk.tokens": 1.0, "stream.chunk.gap.p50": 0.1, "stream.chunk.gap.max": 0.1,
		"stream.chunk.events_collapsed": 29, "stream.fluidity": 1.0, "stream.reader.wait": 0.0, "stream.head_burst": 1.0,
		"stream.chunk.rate.peak": 10.0,
	})
}
