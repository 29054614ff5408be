// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamspan

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/internal/dialect"
	"github.com/otelcol-stream/otelcol-stream/internal/spanlaws"
)

// verdict is what a Finder makes of one span, but for the other spans of its call.
type verdict struct {
	found    bool
	skipped  bool
	decision dialect.Decision
	record   Record
}

// verdicts reads a batch with the given Finder.
func verdicts(f *Finder, td ptrace.Traces) map[ptrace.Span]verdict {
	all := map[ptrace.Span]verdict{}
	f.Skipped = func(_ pcommon.Resource, _ ptrace.ScopeSpans, s ptrace.Span, d dialect.Decision) {
		all[s] = verdict{skipped: true, decision: d}
	}
	found := f.Find(td)
	for i := range found {
		v := verdict{found: true, decision: found[i].Decision}
		found[i].Nested = false
		f.Record(&found[i], &v.record)
		all[found[i].Span] = v
	}
	f.Release()
	return all
}

// chunkSpans has, for every third span, two chunk spans that were folded for it.
func chunkSpans(t *testing.T) FoldedChunks {
	t.Helper()
	table, err := dialect.Compile(dialect.Vocabulary{})
	require.NoError(t, err)
	return func(span ptrace.Span) *Folded {
		if span.SpanID()[7]%3 != 0 {
			return nil
		}
		var totals dialect.ChunkTotals
		var instants []int64
		for _, part := range []pcommon.Timestamp{3, 2} {
			c := ptrace.NewSpan()
			c.SetName("decode_loop")
			c.SetTraceID(pcommon.TraceID{1})
			c.SetSpanID(pcommon.SpanID{1})
			c.SetParentSpanID(pcommon.SpanID{2})
			start := min(max(span.StartTimestamp(), 1), math.MaxInt64)
			at := start + (min(max(span.EndTimestamp(), start), math.MaxInt64)-start)/part
			c.SetStartTimestamp(at)
			c.SetEndTimestamp(at)
			chunk, _, ok := table.ChunkSpan("sglang server", c)
			require.True(t, ok)
			totals.Add(&chunk)
			instants = append(instants, chunk.Instant)
		}
		return &Folded{Chunks: totals.Chunks(span, instants)}
	}
}

// TestNothingIsLeftToTheNextSpan: a span among others is read as it is alone, by a Finder that has read nothing before.
func TestNothingIsLeftToTheNextSpan(t *testing.T) {
	for name, folded := range map[string]FoldedChunks{"events": nil, "chunk spans": chunkSpans(t)} {
		t.Run(name, func(t *testing.T) {
			used := newFinder(t)
			used.Folded = folded
			streaming := 0
			for seed := range uint64(300) {
				td := spanlaws.Generate(rand.New(rand.NewPCG(seed, 2)))
				among := verdicts(used, td)
				for _, rs := range td.ResourceSpans().All() {
					for _, ss := range rs.ScopeSpans().All() {
						for _, s := range ss.Spans().All() {
							one := ptrace.NewTraces()
							r := one.ResourceSpans().AppendEmpty()
							rs.Resource().CopyTo(r.Resource())
							c := r.ScopeSpans().AppendEmpty()
							ss.Scope().CopyTo(c.Scope())
							s.CopyTo(c.Spans().AppendEmpty())

							fresh := newFinder(t)
							fresh.Folded = folded
							alone := verdicts(fresh, one)[c.Spans().At(0)]
							got := among[s]
							if len(got.record.Cadence.Histogram.Buckets) == 0 {
								got.record.Cadence.Histogram.Buckets = alone.record.Cadence.Histogram.Buckets // empty or nil
							}
							require.Equal(t, alone, got, "seed %d, span %s", seed, s.SpanID())
							if alone.found {
								streaming++
							}
						}
					}
				}
			}
			require.Greater(t, streaming, 200)
		})
	}
}
