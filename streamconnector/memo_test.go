// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// anyOf draws one of the values for an attribute, three times out of four the first; nil leaves it out.
func anyOf(t *testing.T, r *rand.Rand, m pcommon.Map, key string, values ...any) {
	v := values[0]
	if r.IntN(4) == 0 {
		v = values[r.IntN(len(values))]
	}
	if v != nil {
		require.NoError(t, m.PutEmpty(key).FromRaw(v))
	}
}

// anyStream is a stream span with attributes out of a few, of all types, so that many streams are alike, or nearly.
func anyStream(t *testing.T, r *rand.Rand) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	anyOf(t, r, rs.Resource().Attributes(), "service.name", "shop", "search")
	anyOf(t, r, rs.Resource().Attributes(), "region", nil, "north", "south")
	s := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	chunked{end: 8}.fill(s)
	m := s.Attributes()
	m.Clear()
	m.PutStr("stream.phase", "stream")
	m.PutDouble("stream.duration", r.Float64()*20)
	anyOf(t, r, m, "stream.time_to_first_chunk", nil, 0.3)
	anyOf(t, r, m, "stream.dialect", nil, "openinference", "mastra")
	anyOf(t, r, m, "stream.outcome", nil, "completed", "error", "nobody knows")
	anyOf(t, r, m, "stream.cadence.quality", nil, "exact", "partial")
	anyOf(t, r, m, "stream.source.kind", nil, "SPAN_KIND_CLIENT", "SPAN_KIND_SERVER")
	anyOf(t, r, m, "stream.source.operation", nil, "chat")
	anyOf(t, r, m, "stream.token.source", nil, "gen_ai.usage.output_tokens", "tokens")
	anyOf(t, r, m, "stream.first_chunk.source", "write", "ai.response.msToFirstChunk")
	anyOf(t, r, m, "gen_ai.request.model", nil, "a", "", "b", int64(1), 1.0, true, []any{"a"}, map[string]any{"a": "b"})
	anyOf(t, r, m, "server.port", nil, int64(443), "443")
	anyOf(t, r, m, "region", nil, nil, "north", "")
	return td
}

// TestMemo holds what is remembered against looking it up for each stream: with series that end, limits that are reached, stores that take
// turns and exports that are refused, the metrics are the same to the byte.
func TestMemo(t *testing.T) {
	for _, temporality := range []string{"cumulative", "delta"} {
		for _, limit := range []int{0, 12} {
			t.Run(fmt.Sprint(temporality, " ", limit), func(t *testing.T) {
				elsewhere := "elsewhere"
				change := func(c *Config) {
					c.AggregationTemporality, c.AggregationCardinalityLimit, c.MetricsExpiration = temporality, limit, 90*time.Second
					c.Dimensions = []DimensionConfig{{Name: "region", Default: &elsewhere}}
					c.ResourceAttributes = []string{"service.name"}
					c.GenAIDuration = true
					c.Exemplars.Enabled = false // they are drawn
				}
				remembers, forgets := newHarness(t, change), newHarness(t, change)
				fresh := forgets.workers.New
				r := rand.New(rand.NewPCG(17, uint64(limit)))
				w := remembers.workers.New().(*worker)
				remembers.workers.New = func() any { return w } // one, so that it has seen all
				known := 0
				for i := range 4_000 {
					td := anyStream(t, r)
					remembers.workers = sync.Pool{New: func() any { return w }}
					remembers.send(t, td)
					forgets.workers = sync.Pool{New: fresh}
					forgets.send(t, td)
					if i%97 != 96 {
						continue
					}
					for j := range w.memo {
						if w.memo[j].holds(remembers.store) {
							known++
						}
					}
					if r.IntN(5) == 0 {
						remembers.refuse, forgets.refuse = errRefused, errRefused
						for _, h := range []*harness{remembers, forgets} {
							h.pass(time.Minute)
							require.ErrorIs(t, h.flush(t.Context()), errRefused)
							h.refuse = nil
						}
						continue
					}
					require.Equal(t, encoded(t, forgets.export(t)), encoded(t, remembers.export(t)), "after %d streams", i+1)
				}
				assert.Positive(t, known, "something was remembered")
			})
		}
	}
}

func encoded(t *testing.T, md pmetric.Metrics) []byte {
	t.Helper()
	out, err := (&pmetric.ProtoMarshaler{}).MarshalMetrics(md)
	require.NoError(t, err)
	return out
}

// TestMemoKeepsNoBatch: what a worker remembers has memory of its own, and what does not fit under the limit it does not remember.
func TestMemoKeepsNoBatch(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.AggregationCardinalityLimit = 3 })
	w := h.workers.New().(*worker)
	for i := range 300 {
		td := raw(chunked{model: fmt.Sprint(strings.Repeat("m", 1<<10), i), end: 2, chunks: []float64{1}})
		w.consume(t.Context(), td)
	}
	remembered := 0
	for i := range w.memo {
		if len(w.memo[i].span) > 0 {
			remembered++
		}
	}
	assert.LessOrEqual(t, remembered, 2, "the third series is the overflow")
	for _, v := range w.stream.span {
		assert.Equal(t, value{}, v)
	}
}

// TestMemoKeepsNoLongText: an attribute that is no dimension makes no series, so that the limit on series does not bound it.
func TestMemoKeepsNoLongText(t *testing.T) {
	h := newHarness(t)
	w := h.workers.New().(*worker)
	for _, key := range []string{"error.type", "stream.dialect", "server.address"} {
		td := anyStream(t, rand.New(rand.NewPCG(1, 2)))
		m := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Attributes()
		m.PutStr(key, strings.Repeat("x", maxText+1))
		for range 3 {
			w.consume(t.Context(), td)
		}
	}
	for i := range w.memo {
		assert.Empty(t, w.memo[i].span)
	}
	var streams uint64
	for _, p := range points(h.export(t), "stream.count") {
		streams += p.count
	}
	assert.EqualValues(t, 9, streams)
}

// TestNoAllocationWhereKindsShareAPlace: the place tells models by their length and two of their letters. One of the two kinds keeps it.
func TestNoAllocationWhereKindsShareAPlace(t *testing.T) {
	h := newHarness(t)
	w := h.workers.New().(*worker)
	var spans []chunked
	for range 50 {
		spans = append(spans, chunked{model: "a-model", end: 2, chunks: []float64{1}}, chunked{model: "b-model", end: 2, chunks: []float64{1}})
	}
	td := raw(spans...)
	w.consume(t.Context(), td)
	places := 0
	for i := range w.memo {
		if len(w.memo[i].span) > 0 {
			places++
		}
	}
	require.Equal(t, 1, places)
	allocations := testing.AllocsPerRun(50, func() { w.consume(context.Background(), td) })
	if !raceEnabled {
		assert.Less(t, allocations, 10.0, "of a batch of 100 streams")
	}
	counts := map[any]uint64{}
	for _, p := range points(h.export(t), "stream.count") {
		counts[p.attributes["gen_ai.request.model"]] += p.count
	}
	assert.Equal(t, counts["a-model"], counts["b-model"])
	assert.NotZero(t, counts["a-model"])
}
