// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/internal/spanlaws"
	"github.com/otelcol-stream/otelcol-stream/test/captures"
)

// assertSound asserts what holds for whatever comes in: every number is finite, buckets add up to the count, times are in order, and the
// histogram of one family counts each stream at most as often as stream.count does.
func assertSound(t *testing.T, md pmetric.Metrics) {
	t.Helper()
	var streams uint64
	for _, p := range points(md, "stream.count") {
		streams += p.count
	}
	for _, name := range names(md) {
		var total uint64
		for _, p := range points(md, name) {
			total += p.count
			assert.False(t, math.IsNaN(p.sum) || math.IsInf(p.sum, 0) || p.sum < 0, "%s: sum %v", name, p.sum)
			assert.Less(t, p.start, p.time)
			if p.counts == nil && p.zero == 0 {
				continue
			}
			inBuckets := p.zero
			for _, n := range p.counts {
				inBuckets += n
			}
			assert.Equal(t, p.count, inBuckets, name)
			assert.LessOrEqual(t, p.min, p.max, name)
			for _, e := range p.exemplars.All() {
				assert.False(t, e.TraceID().IsEmpty())
				assert.LessOrEqual(t, e.DoubleValue(), p.max, name)
			}
		}
		if !strings.HasSuffix(name, "chunk.gap") && !strings.HasSuffix(name, "per_output_chunk") && name != "stream.stall.count" {
			assert.LessOrEqual(t, total, streams, name)
		}
	}
}

// Batches that mix what instrumentations write with what nobody should: whatever the processor makes of them, the connector counts the same
// before and after. The GenAI metrics are left out: that a call is GenAI can hang on an attribute that a stream span does not keep (of the
// captures, TestRawAndSplitAgree compares them).
func TestGeneratedBatches(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 13))
	recorded := uint64(0)
	split := newProcessor(t)
	for i := range 200 {
		td := spanlaws.Generate(r)
		fromRaw, fromSplit := newHarness(t, withoutGenAI), newHarness(t, withoutGenAI)
		fromRaw.send(t, td)
		fromSplit.send(t, split(td))
		want, got := fromRaw.export(t), fromSplit.export(t)
		assertSound(t, want)
		assertSound(t, got)
		require.Equal(t, names(want), names(got), "batch %d", i)
		for _, n := range names(want) {
			w, g := byAttributes(points(want, n)), byAttributes(points(got, n))
			require.Len(t, g, len(w), "batch %d: %s", i, n)
			for key, wp := range w {
				require.Equal(t, wp.count, g[key].count, "batch %d: %s %s", i, n, key)
				require.InDelta(t, wp.sum, g[key].sum, 1e-9*max(1, wp.sum), "batch %d: %s", i, n)
				if n == "stream.count" {
					recorded += wp.count
				}
			}
		}
	}
	assert.Greater(t, recorded, uint64(100))
}

func withoutGenAI(c *Config) { c.GenAIPrefix = "" }

// Ten minutes in which every stream has a model of its own: what is in memory is what the last two minutes brought.
func TestChurnIsForgotten(t *testing.T) {
	for _, temporality := range []string{"cumulative", "delta"} {
		h := newHarness(t, func(c *Config) {
			c.AggregationCardinalityLimit, c.MetricsExpiration, c.AggregationTemporality = 0, 90*time.Second, temporality
		})
		td := raw(stalling())
		model, _ := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Attributes().Get("gen_ai.request.model")
		var total uint64
		for minute := range 10 {
			for i := range 200 {
				model.SetStr(fmt.Sprint(minute, " ", i))
				h.send(t, td)
			}
			for _, p := range points(h.export(t), "stream.count") {
				if temporality == "delta" || p.start == h.lastExport-pcommon.Timestamp(time.Minute) {
					total += p.count
				}
			}
			assert.LessOrEqual(t, h.store.groups(), int64(3*2*200), temporality)
		}
		assert.EqualValues(t, 2000, total)
	}
}

// A collector that starts again counts from zero and says since when.
func TestRestart(t *testing.T) {
	h := newHarness(t)
	h.send(t, raw(stalling()))
	before := only(t, h.export(t), "stream.count")

	again := newHarnessAt(t, 2*time.Minute)
	again.send(t, raw(stalling()))
	after := only(t, again.export(t), "stream.count")
	assert.Greater(t, after.start, before.time)
	assert.Less(t, after.start, after.time)
	assert.EqualValues(t, 1, after.count)
}

// FuzzConsumeTraces feeds OTLP bytes: no panic, and what comes out is sound.
func FuzzConsumeTraces(f *testing.F) {
	m := &ptrace.ProtoMarshaler{}
	add := func(td ptrace.Traces) {
		raw, err := m.MarshalTraces(td)
		require.NoError(f, err)
		if len(raw) < 20_000 {
			f.Add(raw)
		}
	}
	add(raw(stalling()))
	add(process(f, raw(stalling())))
	add(streamSpan(map[string]any{"stream.chunk.gap.histogram": []any{5, 1, -10, 2, 3, 4}, "stream.chunk.gap.mean": 0.1, "stream.chunk.gap.max": 3.0}))
	all, err := captures.All("..")
	require.NoError(f, err)
	for _, c := range all {
		if c.Scenario == "smooth4" {
			exports, err := c.Traces()
			require.NoError(f, err)
			add(exports[0])
			add(process(f, exports[0]))
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(raw)
		if err != nil {
			return
		}
		before, err := m.MarshalTraces(td)
		require.NoError(t, err)
		for _, kind := range []string{"explicit", "exponential"} {
			h := newHarness(t, func(c *Config) { c.Histogram.Type, c.IncludeNested = kind, true })
			h.send(t, td)
			assertSound(t, h.export(t))
		}
		after, err := m.MarshalTraces(td)
		require.NoError(t, err)
		assert.Equal(t, before, after, "spans are only read")
	})
}
