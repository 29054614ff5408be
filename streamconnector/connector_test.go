// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/internal/streamspan"
	"github.com/otelcol-stream/otelcol-stream/streamconnector/internal/metadata"
	"github.com/otelcol-stream/otelcol-stream/streamprocessor"
)

// stalling is a stream of 12 chunks with a freeze of 3 s and one of 1 s; the figures are worked out in the tests of the cadence.
func stalling() chunked {
	return chunked{model: "m", end: 5.2, tokens: 24, chunks: []float64{0.2, 0.3, 0.4, 0.5, 0.6, 3.6, 3.7, 3.8, 3.9, 4.0, 5.0, 5.1}}
}

// inputs gives a batch as it came and as the processor leaves it.
func inputs(t *testing.T, td ptrace.Traces) map[string]ptrace.Traces {
	return map[string]ptrace.Traces{"raw": td, "split": process(t, td)}
}

func TestEveryMetric(t *testing.T) {
	for name, td := range inputs(t, raw(stalling())) {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, func(c *Config) { c.GenAIDuration = true })
			h.send(t, td)
			md := h.export(t)

			assert.Equal(t, []string{
				"gen_ai.client.operation.duration", "gen_ai.client.operation.time_per_output_chunk", "gen_ai.client.operation.time_to_first_chunk",
				"stream.active_time", "stream.chunk.count", "stream.chunk.gap", "stream.chunk.gap.max", "stream.chunk.tokens", "stream.count",
				"stream.duration", "stream.fluidity", "stream.head_burst", "stream.reader.wait", "stream.stall.count", "stream.stall.duration",
				"stream.time_to_first_chunk", "stream.token.rate",
			}, names(md))

			common := map[string]any{
				"span.kind": "SPAN_KIND_CLIENT", "stream.dialect": only(t, md, "stream.duration").attributes["stream.dialect"],
				"gen_ai.provider.name": "openai", "gen_ai.request.model": "m",
			}
			assert.NotEmpty(t, common["stream.dialect"])
			for metric, want := range map[string]float64{
				"stream.time_to_first_chunk": 0.2, "stream.duration": 5, "stream.chunk.gap.max": 3, "stream.chunk.count": 12, "stream.chunk.tokens": 2,
				"stream.token.rate": 23 / 4.9, "stream.head_burst": (2. / 11) / (0.2 / 4.9),
				// Two tokens a chunk: deadlines of 0.2 s, so that the freeze of 3 s breaks what slack there is, and that of 1 s too.
				"stream.fluidity": 9. / 11,
				// The reader needs 0.2 s a chunk. At 3.6 s five chunks have been read in 1 s after 0.2 s: 2.4 s of waiting, and none at 5 s,
				// when the next five have been read until 4.6 s: 0.4 s.
				"stream.reader.wait": 2.8,
			} {
				p := only(t, md, metric)
				assert.Equal(t, common, p.attributes, metric)
				assert.Equal(t, map[string]any{"service.name": "chat"}, p.resource)
				assert.EqualValues(t, 1, p.count, metric)
				assert.InDelta(t, want, p.sum, 1e-9, metric)
				assert.InDelta(t, want, p.min, 1e-9, metric)
				assert.InDelta(t, want, p.max, 1e-9, metric)
				assert.EqualValues(t, 1, p.counts[bucketOf(p.bounds, want)], metric)
				assert.Equal(t, pcommon.NewTimestampFromTime(epoch), p.start)
				assert.Equal(t, pcommon.NewTimestampFromTime(epoch.Add(time.Minute)), p.time)
			}

			gap := only(t, md, "stream.chunk.gap")
			assert.EqualValues(t, 11, gap.count)
			assert.InDelta(t, 4.9, gap.sum, 1e-9)
			want := make([]uint64, 18)
			want[bucketOf(gap.bounds, 0.1)], want[bucketOf(gap.bounds, 1)], want[bucketOf(gap.bounds, 3)] = 9, 1, 1
			assert.Equal(t, want, gap.counts)

			assert.EqualValues(t, 2, only(t, md, "stream.stall.count").count)
			assert.InDelta(t, 4, only(t, md, "stream.stall.duration").sum, 1e-9)
			assert.InDelta(t, 5.2, only(t, md, "stream.active_time").sum, 1e-9)

			count := only(t, md, "stream.count")
			assert.EqualValues(t, 1, count.count)
			assert.Equal(t, "exact", count.attributes["stream.cadence.quality"])
			assert.Equal(t, "known", count.attributes["stream.first_chunk"])
			assert.Contains(t, count.attributes, "stream.outcome")

			convention := map[string]any{"gen_ai.operation.name": "_OTHER", "gen_ai.provider.name": "openai", "gen_ai.request.model": "m"}
			ttfc := only(t, md, "gen_ai.client.operation.time_to_first_chunk")
			assert.Equal(t, convention, ttfc.attributes)
			assert.Equal(t, genAILadder, ttfc.bounds)
			assert.InDelta(t, 0.2, ttfc.sum, 1e-9)
			chunk := only(t, md, "gen_ai.client.operation.time_per_output_chunk")
			assert.EqualValues(t, 11, chunk.count)
			assert.InDelta(t, 4.9, chunk.sum, 1e-9)
			assert.EqualValues(t, 9, chunk.counts[bucketOf(genAILadder, 0.1)])
			assert.InDelta(t, 5.2, only(t, md, "gen_ai.client.operation.duration").sum, 1e-9)
		})
	}
}

func TestGenAIAttributes(t *testing.T) {
	span := stalling()
	span.attributes = map[string]any{
		"gen_ai.operation.name": "chat", "gen_ai.response.model": "m-2026", "server.address": "api.example.com", "server.port": 8443,
		"gen_ai.prompt.0.content": "secret",
	}
	for name, td := range inputs(t, raw(span)) {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			h.send(t, td)
			assert.Equal(t, map[string]any{
				"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "m", "gen_ai.response.model": "m-2026",
				"server.address": "api.example.com", "server.port": int64(8443),
			}, only(t, h.export(t), "gen_ai.client.operation.time_to_first_chunk").attributes)
		})
	}

	span.kind = ptrace.SpanKindServer
	h := newHarness(t)
	h.send(t, raw(span))
	md := h.export(t)
	assert.Empty(t, points(md, "gen_ai.client.operation.time_to_first_chunk"), "a server's view is none of a client")
	assert.Len(t, points(md, "stream.time_to_first_chunk"), 1)

	span.kind = ptrace.SpanKindClient
	h = newHarness(t, func(c *Config) { c.GenAIPrefix = "gen_ai.client.call" })
	h.send(t, raw(span))
	assert.Len(t, points(h.export(t), "gen_ai.client.call.time_per_output_chunk"), 1)

	h = newHarness(t, func(c *Config) { c.GenAIPrefix = "" })
	h.send(t, raw(span))
	for _, n := range names(h.export(t)) {
		assert.True(t, strings.HasPrefix(n, "stream."), n)
	}
}

// streamSpan is a stream span as the processor writes it.
func streamSpan(attributes map[string]any) ptrace.Traces {
	td := ptrace.NewTraces()
	s := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	s.SetStartTimestamp(at(1))
	s.SetEndTimestamp(at(3))
	s.Attributes().PutStr("stream.phase", "stream")
	for k, v := range attributes {
		if err := s.Attributes().PutEmpty(k).FromRaw(v); err != nil {
			panic(err)
		}
	}
	return td
}

func TestFirstChunkKnownUnknownNone(t *testing.T) {
	for _, tc := range []struct {
		want       string
		attributes map[string]any
	}{
		{"known", map[string]any{"stream.time_to_first_chunk": 0.5, "stream.outcome": "error"}},
		{"none", map[string]any{"stream.outcome": "error"}},
		{"unknown", map[string]any{"stream.outcome": "error", "stream.chunk.count": 4}},
		{"unknown", map[string]any{"stream.outcome": "error", "stream.token.count": 4}},
		{"unknown", map[string]any{"stream.outcome": "completed"}},
		{"unknown", map[string]any{"stream.outcome": "cancelled"}},
	} {
		h := newHarness(t)
		h.send(t, streamSpan(tc.attributes))
		assert.Equal(t, tc.want, only(t, h.export(t), "stream.count").attributes["stream.first_chunk"], "%v", tc.attributes)
	}
}

func TestQualitiesAndOutcomesAreToldApart(t *testing.T) {
	h := newHarness(t)
	for i, q := range []string{"exact", "partial", "mean", "none", "nonsense"} {
		for j, o := range []string{"completed", "incomplete", "cancelled", "error", "unknown", "a prompt"} {
			for range 1 + i + 10*j {
				h.send(t, streamSpan(map[string]any{"stream.cadence.quality": q, "stream.outcome": o}))
			}
		}
	}
	got := map[string]uint64{}
	for _, p := range points(h.export(t), "stream.count") {
		got[fmt.Sprint(p.attributes["stream.cadence.quality"], " ", p.attributes["stream.outcome"])] = p.count
	}
	assert.Len(t, got, 4*5, "what nobody defined is no series of its own")
	assert.EqualValues(t, 1, got["exact completed"])
	assert.EqualValues(t, 2+20, got["partial cancelled"])
	assert.EqualValues(t, (4+40)+(4+50)+(5+40)+(5+50), got["none unknown"])
}

func TestSpansThatDoNotCount(t *testing.T) {
	h := newHarness(t)
	plain := raw(chunked{end: 2})
	plain.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Attributes().Clear()
	h.send(t, plain)
	for _, phase := range []string{"request", "envelope", "other"} {
		h.send(t, streamSpan(map[string]any{"stream.phase": phase, "stream.time_to_first_chunk": 0.5}))
	}
	h.send(t, streamSpan(map[string]any{"stream.nested": true, "stream.time_to_first_chunk": 0.5}))
	assert.Zero(t, h.export(t).ResourceMetrics().Len())

	h = newHarness(t, func(c *Config) { c.IncludeNested = true })
	h.send(t, streamSpan(map[string]any{"stream.nested": true, "stream.time_to_first_chunk": 0.5}))
	assert.EqualValues(t, 1, only(t, h.export(t), "stream.count").count)
}

func processIn(t *testing.T, td ptrace.Traces, mode string) ptrace.Traces {
	return process(t, td, func(c *streamprocessor.Config) { c.Mode = streamspan.Mode(mode) })
}

// Every mode of the processor gives the same metrics: request and envelope spans are passed over, whole ones are read.
func TestModes(t *testing.T) {
	td := raw(stalling())
	h := newHarness(t)
	h.send(t, td)
	want := h.export(t)
	for _, mode := range []string{"split", "annotate", "nest"} {
		h := newHarness(t)
		h.send(t, processIn(t, td, mode))
		got := h.export(t)
		for _, n := range names(want) {
			w, g := only(t, want, n), only(t, got, n)
			assert.Equal(t, w.attributes, g.attributes, "%s %s", mode, n)
			assert.Equal(t, w.count, g.count, "%s %s", mode, n)
			assert.InDelta(t, w.sum, g.sum, 1e-9, "%s %s", mode, n)
		}
	}
}

func TestNonsenseIsRefused(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 1e300} {
		h := newHarness(t)
		h.send(t, streamSpan(map[string]any{
			"stream.time_to_first_chunk": v, "stream.duration": v, "stream.chunk.gap.mean": v, "stream.chunk.gap.max": v, "stream.head_burst": v,
			"stream.chunk.gap.histogram": []any{5, 0, 1, 1 << 35}, "stream.stall.count": math.MaxInt64, "stream.stall.duration": v,
			"stream.chunk.count": -1, "stream.chunk.tokens": v, "stream.token.rate": v, "stream.fluidity": v, "stream.reader.wait": v,
		}))
		md := h.export(t)
		assert.Equal(t, []string{"stream.count"}, names(md), "%v", v)
		assert.EqualValues(t, 1, only(t, md, "stream.count").count)
	}

	backwards := streamSpan(nil)
	s := backwards.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
	s.SetEndTimestamp(s.StartTimestamp() - 1)
	h := newHarness(t)
	h.send(t, backwards)
	assert.Empty(t, points(h.export(t), "stream.active_time"))
}

func TestSourceKind(t *testing.T) {
	for kind, want := range map[int32]string{
		0: "SPAN_KIND_UNSPECIFIED", 1: "SPAN_KIND_INTERNAL", 2: "SPAN_KIND_SERVER", 3: "SPAN_KIND_CLIENT", 4: "SPAN_KIND_PRODUCER",
		5: "SPAN_KIND_CONSUMER", 6: "SPAN_KIND_UNSPECIFIED", -1: "SPAN_KIND_UNSPECIFIED",
	} {
		td := streamSpan(map[string]any{"stream.phase": "whole"})
		td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).SetKind(ptrace.SpanKind(kind))
		h := newHarness(t)
		h.send(t, td)
		assert.Equal(t, want, only(t, h.export(t), "stream.count").attributes["span.kind"], kind)
	}
}

func TestSpansAreOnlyRead(t *testing.T) {
	assert.False(t, newHarness(t).Capabilities().MutatesData)
}

func TestDimensions(t *testing.T) {
	none, unset := "none", ""
	span := stalling()
	span.attributes = map[string]any{"tier": "gold", "retries": 2, "ratio": 0.5, "cached": true, "retried": false, "tags": []any{"a", "b"}}
	h := newHarness(t, func(c *Config) {
		c.Dimensions = []DimensionConfig{
			{Name: "tier"},
			{Name: "retries"},
			{Name: "ratio"},
			{Name: "cached"},
			{Name: "retried"},
			{Name: "tags"},
			{Name: "missing"},
			{Name: "http.route", Default: &none},
			{Name: "empty", Default: &unset},
			{Name: "service.name"},
		}
	})
	h.send(t, raw(span))
	for _, metric := range []string{"stream.duration", "stream.count"} {
		got := only(t, h.export(t), metric).attributes
		for k, want := range map[string]any{
			"tier": "gold", "retries": int64(2), "ratio": 0.5, "cached": true, "retried": false, "tags": `["a","b"]`, "http.route": "none", "empty": "", "service.name": "chat",
		} {
			assert.Equal(t, want, got[k], k)
		}
		assert.NotContains(t, got, "missing")
	}
}

func TestResourceAttributes(t *testing.T) {
	batch := func(pod, region string) ptrace.Traces {
		td := raw(stalling())
		a := td.ResourceSpans().At(0).Resource().Attributes()
		a.PutStr("pod", pod)
		a.PutStr("region", region)
		return td
	}
	for _, tc := range []struct {
		keep []string
		want []map[string]any
	}{
		{[]string{"all"}, []map[string]any{
			{"service.name": "chat", "pod": "a", "region": "x"}, {"service.name": "chat", "pod": "b", "region": "x"}, {"service.name": "chat", "pod": "c", "region": "y"},
		}},
		{[]string{"region", "absent"}, []map[string]any{{"region": "x"}, {"region": "y"}}},
		{[]string{}, []map[string]any{{}}},
	} {
		h := newHarness(t, func(c *Config) { c.ResourceAttributes = tc.keep })
		h.send(t, batch("a", "x"), batch("b", "x"), batch("c", "y"))
		var got []map[string]any
		total := uint64(0)
		for _, p := range points(h.export(t), "stream.count") {
			got = append(got, p.resource)
			total += p.count
		}
		assert.Equal(t, tc.want, got)
		assert.EqualValues(t, 3, total)
	}
}

func TestCumulativeAndDeltaAgree(t *testing.T) {
	cumulative := newHarness(t)
	delta := newHarness(t, func(c *Config) { c.AggregationTemporality = "delta" })
	r := rand.New(rand.NewPCG(1, 2))
	sums, counts := map[string]float64{}, map[string]uint64{}
	var last pcommon.Timestamp
	for range 5 {
		for range r.IntN(20) {
			td := raw(randomStream(r))
			cumulative.send(t, td)
			delta.send(t, td)
		}
		d := delta.export(t)
		for _, n := range names(d) {
			for _, p := range points(d, n) {
				counts[n] += p.count
				sums[n] += p.sum
				assert.Less(t, p.start, p.time)
				assert.GreaterOrEqual(t, p.start, last, "intervals do not overlap")
			}
		}
		last = delta.lastExport
		c := cumulative.export(t)
		for _, n := range names(c) {
			var count uint64
			var sum float64
			for _, p := range points(c, n) {
				count += p.count
				sum += p.sum
				assert.GreaterOrEqual(t, p.start, pcommon.NewTimestampFromTime(epoch))
			}
			assert.Equal(t, counts[n], count, n)
			assert.InDelta(t, sums[n], sum, 1e-9, n)
		}
	}
	assert.Zero(t, delta.export(t).ResourceMetrics().Len(), "nothing happened, nothing to say")
	assert.NotZero(t, cumulative.export(t).ResourceMetrics().Len())
}

// randomStream has 1 to 60 chunks, some of them at the same time, some after a stall.
func randomStream(r *rand.Rand) chunked {
	c := chunked{model: fmt.Sprint("m", r.IntN(3)), tokens: r.Int64N(200), id: byte(1 + r.IntN(100))}
	at := 0.01 + r.Float64()
	for range 1 + r.IntN(60) {
		c.chunks = append(c.chunks, at)
		at += []float64{0, 0.02, r.Float64() * 0.2, r.Float64() * r.Float64() * 3}[r.IntN(4)]
	}
	c.end = at + 0.1
	return c
}

func TestNothingIsLostWhenTheNextConsumerRefuses(t *testing.T) {
	for _, temporality := range []string{"cumulative", "delta"} {
		for _, kind := range []string{"explicit", "exponential"} {
			t.Run(temporality+" "+kind, func(t *testing.T) {
				h := newHarness(t, func(c *Config) { c.AggregationTemporality, c.Histogram.Type = temporality, kind })
				h.send(t, raw(stalling()))
				h.refuse = errRefused
				h.pass(time.Minute)
				require.ErrorIs(t, h.flush(context.Background()), errRefused)
				other := stalling()
				other.model = "other"
				h.send(t, raw(stalling(), other))
				require.ErrorIs(t, h.flush(context.Background()), errRefused)
				h.refuse = nil

				md := h.export(t)
				ps := points(md, "stream.chunk.gap")
				require.Len(t, ps, 2)
				assert.EqualValues(t, 22, ps[0].count)
				assert.InDelta(t, 9.8, ps[0].sum, 1e-9)
				assert.EqualValues(t, 11, ps[1].count)
				assert.Equal(t, pcommon.NewTimestampFromTime(epoch), ps[0].start, "the interval is the whole time since the last success")
				assert.EqualValues(t, 4, points(md, "stream.stall.count")[0].count)
				var inBuckets uint64
				for _, n := range ps[0].counts {
					inBuckets += n
				}
				assert.EqualValues(t, 22, inBuckets+ps[0].zero)
				if temporality == "delta" {
					assert.Zero(t, h.export(t).ResourceMetrics().Len())
				}
			})
		}
	}
}

func TestAPermanentErrorEndsTheInterval(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.AggregationTemporality = "delta" })
	h.send(t, raw(stalling()))
	h.refuse = consumererror.NewPermanent(errRefused)
	require.Error(t, h.flush(context.Background()))
	h.refuse = nil
	assert.Zero(t, h.export(t).ResourceMetrics().Len())
}

func TestStartTimes(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.MetricsExpiration = 90 * time.Second })
	other := stalling()
	other.model = "other"

	h.send(t, raw(stalling()))
	first := only(t, h.export(t), "stream.count") // minute 1
	h.send(t, raw(other))
	md := h.export(t) // minute 2
	assert.Equal(t, first.start, points(md, "stream.count")[0].start)
	assert.Equal(t, first.time, points(md, "stream.count")[1].start, "a new series starts with the export before it")

	// The first was seen in minute 0: after the export of minute 2 it has gone.
	md = h.export(t) // minute 3
	assert.Equal(t, "other", only(t, md, "stream.count").attributes["gen_ai.request.model"])
	h.send(t, raw(stalling()))
	md = h.export(t) // minute 4
	again := only(t, md, "stream.count")
	assert.Equal(t, "m", again.attributes["gen_ai.request.model"])
	assert.EqualValues(t, 1, again.count, "it counts from zero")
	assert.Greater(t, again.start, first.time, "and says so: its start is after what it exported before")
	assert.Less(t, again.start, again.time)

	h.export(t)
	h.export(t)
	assert.Zero(t, h.export(t).ResourceMetrics().Len())
	assert.Empty(t, h.store.resources, "a resource without series goes too")
}

func TestAClockThatStepsBack(t *testing.T) {
	for _, temporality := range []string{"cumulative", "delta"} {
		h := newHarness(t, func(c *Config) { c.AggregationTemporality = temporality })
		var last pcommon.Timestamp
		for _, step := range []time.Duration{time.Minute, -time.Hour, time.Second, 2 * time.Hour, -time.Nanosecond} {
			h.pass(step)
			h.send(t, raw(stalling()))
			h.sink.Reset()
			require.NoError(t, h.flush(context.Background()))
			p := only(t, h.sink.AllMetrics()[0], "stream.chunk.gap")
			assert.Less(t, p.start, p.time, temporality)
			assert.Greater(t, p.time, last, temporality)
			for _, e := range p.exemplars.All() {
				assert.GreaterOrEqual(t, e.Timestamp(), p.start)
				assert.LessOrEqual(t, e.Timestamp(), p.time)
			}
			last = p.time
		}
	}
}

func TestCardinalityLimit(t *testing.T) {
	for _, temporality := range []string{"cumulative", "delta"} {
		t.Run(temporality, func(t *testing.T) {
			const limit, distinct = 20, 100_000
			h := newHarness(t, func(c *Config) { c.AggregationCardinalityLimit, c.AggregationTemporality = limit, temporality })
			td := raw(chunked{model: "m", end: 1, chunks: []float64{0.2, 0.4}})
			model, _ := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Attributes().Get("gen_ai.request.model")
			for i := range distinct {
				model.SetStr(fmt.Sprint("model ", i))
				h.send(t, td)
			}
			md := h.export(t)
			for _, name := range names(md) {
				ps := points(md, name)
				require.Len(t, ps, limit, name)
				var total, overflow uint64
				for _, p := range ps {
					total += p.count
					if p.attributes["otel.metric.overflow"] == true {
						assert.Len(t, p.attributes, 1)
						overflow = p.count
					}
				}
				if p := ps[0]; p.bounds != nil || name == "stream.count" {
					assert.EqualValues(t, distinct, total, name)
					assert.EqualValues(t, distinct-limit+1, overflow, name)
				}
			}
			assert.LessOrEqual(t, h.store.groups(), int64(3*limit))
		})
	}
}

func TestResourcesAreLimitedToo(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.AggregationCardinalityLimit = 3 })
	for i := range 10 {
		td := raw(stalling())
		td.ResourceSpans().At(0).Resource().Attributes().PutInt("pod", int64(i))
		h.send(t, td)
	}
	td := raw(stalling())
	td.ResourceSpans().At(0).Resource().Attributes().Clear()
	h.send(t, td)
	var counts []uint64
	for _, p := range points(h.export(t), "stream.count") {
		counts = append(counts, p.count)
		assert.Equal(t, len(counts) == 3, p.resource["otel.metric.overflow"] == true)
	}
	assert.Equal(t, []uint64{1, 1, 9}, counts)
}

// The overflow of a refused delta export goes back to the overflow, and not to a series without attributes.
func TestOverflowComesBackAfterARefusal(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.AggregationCardinalityLimit, c.AggregationTemporality = 2, "delta" })
	for _, model := range []string{"a", "b", "c"} {
		span := stalling()
		span.model = model
		h.send(t, raw(span))
	}
	h.refuse = errRefused
	require.Error(t, h.flush(context.Background()))
	h.refuse = nil
	ps := points(h.export(t), "stream.count")
	require.Len(t, ps, 2)
	assert.Equal(t, "a", ps[0].attributes["gen_ai.request.model"])
	assert.Equal(t, map[string]any{"otel.metric.overflow": true}, ps[1].attributes)
	assert.EqualValues(t, 2, ps[1].count)
}

func TestExemplars(t *testing.T) {
	for _, kind := range []string{"explicit", "exponential"} {
		h := newHarness(t, func(c *Config) { c.Exemplars.MaxPerDataPoint, c.Histogram.Type = 2, kind })
		for i := range byte(20) {
			span := stalling()
			span.id = i
			h.send(t, raw(span))
		}
		md := h.export(t)
		for metric, value := range map[string]float64{"stream.time_to_first_chunk": 0.2, "stream.chunk.gap": 3, "gen_ai.client.operation.time_per_output_chunk": 3} {
			p := only(t, md, metric)
			require.Equal(t, 2, p.exemplars.Len(), metric)
			for _, e := range p.exemplars.All() {
				assert.InDelta(t, value, e.DoubleValue(), 1e-9)
				assert.EqualValues(t, 0xaa, e.TraceID()[0])
				assert.Equal(t, e.TraceID()[15], e.SpanID()[7])
				assert.Zero(t, e.FilteredAttributes().Len())
			}
		}
		assert.Zero(t, only(t, h.export(t), "stream.chunk.gap").exemplars.Len(), "those of an interval only")
	}

	h := newHarness(t, func(c *Config) { c.Exemplars.Enabled = false })
	h.send(t, raw(stalling()))
	assert.Zero(t, only(t, h.export(t), "stream.chunk.gap").exemplars.Len())

	h = newHarness(t)
	h.send(t, streamSpan(map[string]any{"stream.time_to_first_chunk": 0.5}))
	assert.Zero(t, only(t, h.export(t), "stream.time_to_first_chunk").exemplars.Len(), "no trace to point to")
}

// Each of 1,000 streams is as likely to be among the 5 as any other: over 400 rounds, 2 times on average, and the first and the last
// tenth get their share of 200 to within five standard deviations of 13.4.
func TestExemplarsAreAUniformSample(t *testing.T) {
	var firstTenth, lastTenth int
	for range 400 {
		var r reservoir
		span := ptrace.NewSpan()
		for i := range 1000 {
			span.SetTraceID(pcommon.TraceID{1, 14: byte(i >> 8), 15: byte(i)})
			r.offer(5, span, time.Unix(0, 0), &values{})
		}
		for _, e := range r.kept {
			switch i := int(e.trace[14])<<8 | int(e.trace[15]); {
			case i < 100:
				firstTenth++
			case i >= 900:
				lastTenth++
			}
		}
	}
	assert.InDelta(t, 200, firstTenth, 67)
	assert.InDelta(t, 200, lastTenth, 67)
}

func TestAdjustedCounts(t *testing.T) {
	span := stalling()
	span.traceState = "vendor=x,ot=th:c" // a quarter of the traces
	for name, td := range inputs(t, raw(span)) {
		h := newHarness(t)
		h.send(t, td)
		md := h.export(t)
		assert.EqualValues(t, 4, only(t, md, "stream.count").count, name)
		assert.EqualValues(t, 8, only(t, md, "stream.stall.count").count, name)
		assert.InDelta(t, 16, only(t, md, "stream.stall.duration").sum, 1e-9, name)
		assert.InDelta(t, 20.8, only(t, md, "stream.active_time").sum, 1e-9, name)
		gap := only(t, md, "stream.chunk.gap")
		assert.EqualValues(t, 44, gap.count, name)
		assert.InDelta(t, 19.6, gap.sum, 1e-9, name)
		ttfc := only(t, md, "stream.time_to_first_chunk")
		assert.EqualValues(t, 4, ttfc.count, name)
		assert.InDelta(t, 0.8, ttfc.sum, 1e-9, name)
		assert.EqualValues(t, 4, ttfc.counts[bucketOf(ttfc.bounds, 0.2)], name)
	}
}

// Nothing of prompt, completion or headers can reach a metric, whatever its attribute is called: everything of a span but the fixed
// attributes of the metrics holds a secret here, under every name that a metric or the processor knows.
func TestNoContentReachesAMetric(t *testing.T) {
	const secret = "SECRET"
	td := raw(stalling())
	rs := td.ResourceSpans().At(0)
	rs.Resource().Attributes().PutStr("resource.prompt", secret)
	ss := rs.ScopeSpans().At(0)
	ss.Scope().Attributes().PutStr("scope.prompt", secret)
	s := ss.Spans().At(0)
	s.SetName(secret)
	s.Status().SetMessage(secret)
	for _, key := range []string{
		"gen_ai.prompt", "gen_ai.completion", "gen_ai.input.messages", "input.value", "output.value", "llm.prompts", "http.request.header.authorization",
		"url.full", "stream.outcome", "stream.cadence.quality", "stream.first_chunk", "stream.source.kind", "span.kind", "otel.metric.overflow",
		"service.name", "stream.token.source", "stream.first_chunk.source", "exception.message", "user.id",
	} {
		s.Attributes().PutStr(key, secret)
	}
	for _, e := range s.Events().All() {
		e.Attributes().PutStr("gen_ai.event.content", secret)
	}
	s.Links().AppendEmpty().Attributes().PutStr("link", secret)

	check := func(h *harness, expected bool) {
		raw, err := (&pmetric.JSONMarshaler{}).MarshalMetrics(h.export(t))
		require.NoError(t, err)
		assert.Equal(t, expected, strings.Contains(string(raw), secret))
	}
	split := process(t, td)
	for _, kind := range []string{"explicit", "exponential"} {
		h := newHarness(t, func(c *Config) {
			c.GenAIDuration, c.Histogram.Type, c.ResourceAttributes = true, kind, []string{"service.name"}
		})
		h.send(t, td, split)
		check(h, false)
	}
	named := newHarness(t, func(c *Config) {
		c.Dimensions, c.ResourceAttributes = []DimensionConfig{{Name: "user.id"}}, nil
	})
	named.send(t, td)
	check(named, true)
}

// The ticker exports at the interval, and shutdown exports what came since; then nothing runs any more (TestMain looks for that).
func TestFlushIntervalAndShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sink consumertest.MetricsSink
		f := NewFactory()
		c, err := f.CreateTracesToMetrics(context.Background(), connectortest.NewNopSettings(metadata.Type), f.CreateDefaultConfig(), &sink)
		require.NoError(t, err)
		start, cancel := context.WithCancel(context.Background())
		require.NoError(t, c.Start(start, componenttest.NewNopHost()))
		cancel() // the context of Start is not that of the component's life

		require.NoError(t, c.ConsumeTraces(context.Background(), raw(stalling())))
		time.Sleep(14 * time.Second) // in virtual time, as all sleeps here
		synctest.Wait()
		assert.Empty(t, sink.AllMetrics())
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, sink.AllMetrics(), 1)
		assert.EqualValues(t, 1, only(t, sink.AllMetrics()[0], "stream.count").count)

		require.NoError(t, c.ConsumeTraces(context.Background(), raw(stalling())))
		require.NoError(t, c.Shutdown(context.Background()))
		require.Len(t, sink.AllMetrics(), 2, "before Shutdown returns")
		assert.EqualValues(t, 2, only(t, sink.AllMetrics()[1], "stream.count").count)
		require.NoError(t, c.Shutdown(context.Background()), "a second time does nothing")
		assert.Len(t, sink.AllMetrics(), 2)
	})
}

// A consumer that hangs does not keep the collector from stopping past the time it has, and what it held goes to the last export.
func TestShutdownWhileAnExportHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []uint64
		hanging := hangOnce{got: &got}
		f := NewFactory()
		cfg := f.CreateDefaultConfig().(*Config)
		cfg.AggregationTemporality = "delta"
		c, err := f.CreateTracesToMetrics(context.Background(), connectortest.NewNopSettings(metadata.Type), cfg, &hanging)
		require.NoError(t, err)
		require.NoError(t, c.Start(context.Background(), componenttest.NewNopHost()))
		require.NoError(t, c.ConsumeTraces(context.Background(), raw(stalling())))
		time.Sleep(15 * time.Second) // in virtual time
		synctest.Wait()
		require.True(t, hanging.hung)

		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		began := time.Now()
		require.NoError(t, c.Shutdown(ctx))
		assert.Equal(t, 5*time.Second, time.Since(began))
		assert.Equal(t, []uint64{1}, got)
	})
}

type hangOnce struct {
	consumertest.Consumer
	hung bool
	got  *[]uint64
}

func (h *hangOnce) ConsumeMetrics(ctx context.Context, md pmetric.Metrics) error {
	if !h.hung {
		h.hung = true
		<-ctx.Done()
		return ctx.Err()
	}
	for _, p := range points(md, "stream.count") {
		*h.got = append(*h.got, p.count)
	}
	return nil
}

func TestShutdownReportsWhatItCouldNotExport(t *testing.T) {
	next := consumertest.NewErr(errRefused)
	f := NewFactory()
	c, err := f.CreateTracesToMetrics(context.Background(), connectortest.NewNopSettings(metadata.Type), f.CreateDefaultConfig(), next)
	require.NoError(t, err)
	require.NoError(t, c.Start(context.Background(), componenttest.NewNopHost()))
	require.NoError(t, c.ConsumeTraces(context.Background(), raw(stalling())))
	assert.ErrorIs(t, c.Shutdown(context.Background()), errRefused)
}

func TestConcurrentBatches(t *testing.T) {
	for _, temporality := range []string{"cumulative", "delta"} {
		// Without expiration: an export takes a minute of the harness's time, in which a slow sender may not have been heard of for long.
		h := newHarness(t, func(c *Config) { c.AggregationTemporality, c.MetricsExpiration = temporality, 0 })
		const senders, batches = 8, 50
		done := make(chan error, senders)
		for range senders {
			go func() {
				var err error
				for range batches {
					err = errors.Join(err, h.ConsumeTraces(context.Background(), raw(stalling(), stalling())))
				}
				done <- err
			}()
		}
		var total uint64
		count := func() {
			for _, p := range points(h.export(t), "stream.chunk.gap") {
				if temporality == "cumulative" {
					total = 0
				}
				total += p.count
			}
		}
		for range senders {
			count()
			require.NoError(t, <-done)
		}
		count()
		assert.EqualValues(t, senders*batches*2*11, total)
	}
}

// A batch allocates a little, for the telemetry of the connector itself, and a stream of it nothing.
func TestNoAllocationPerStream(t *testing.T) {
	for _, kind := range []string{"explicit", "exponential"} {
		h := newHarness(t, func(c *Config) { c.Histogram.Type = kind })
		w := h.workers.Get().(*worker)
		allocations := func(streams int) float64 {
			spans := make([]chunked, streams)
			for i := range spans {
				spans[i] = stalling()
			}
			td := raw(spans...)
			w.consume(context.Background(), td)
			return testing.AllocsPerRun(50, func() { w.consume(context.Background(), td) })
		}
		many := allocations(100)
		if !raceEnabled {
			assert.Equal(t, allocations(1), many, kind)
			assert.Less(t, many, 10.0, kind)
		}
	}
}
