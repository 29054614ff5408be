// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// serverWrites are the instants at which the recorded server really wrote its body, from its own log.
func serverWrites(t testing.TB, tracesPath string) [][]int64 {
	t.Helper()
	raw, err := os.ReadFile(strings.TrimSuffix(tracesPath, ".traces.jsonl") + ".truth.json")
	require.NoError(t, err)
	var attempts []struct {
		Received string  `json:"request_received_unix_nano"`
		Writes   [][]any `json:"writes"`
	}
	require.NoError(t, json.Unmarshal(raw, &attempts))
	var out [][]int64
	for _, a := range attempts {
		received, err := strconv.ParseInt(a.Received, 10, 64)
		require.NoError(t, err)
		var writes []int64
		for _, w := range a.Writes {
			if w[2] != "h" {
				writes = append(writes, received+int64(w[0].(float64)))
			}
		}
		out = append(out, writes)
	}
	return out
}

// TestFoldFastAPICaptures folds what a real FastAPI server exported and compares it with the spans that were folded, read here once more,
// and with the server's own log of its writes.
func TestFoldFastAPICaptures(t *testing.T) {
	folded := 0
	for _, capture := range allCaptures(t) {
		if capture.Instrumentation != "python/fastapi" {
			continue
		}
		t.Run(capture.Scenario, func(t *testing.T) {
			exports, err := capture.Traces()
			require.NoError(t, err)
			truth := serverWrites(t, capture.TracesPath())

			in := map[pcommon.SpanID]ptrace.Span{}
			body := map[pcommon.SpanID][]int64{} // by parent
			for _, td := range exports {
				for _, s := range spansOf(td) {
					in[s.SpanID()] = s
					if v, ok := s.Attributes().Get("asgi.event.type"); ok && v.Str() == "http.response.body" {
						body[s.ParentSpanID()] = append(body[s.ParentSpanID()], int64(s.StartTimestamp()))
					}
				}
			}

			h := newHarness(t, folding)
			for _, td := range exports {
				mine := ptrace.NewTraces()
				td.CopyTo(mine)
				h.consume(t, mine)
			}
			require.NoError(t, h.Shutdown(context.Background()))
			all := ptrace.NewTraces()
			for _, td := range h.sink.AllTraces() {
				td.ResourceSpans().MoveAndAppendTo(all.ResourceSpans())
			}
			left := map[pcommon.SpanID]bool{}
			for _, s := range spansOf(all) {
				left[s.SpanID()] = true
			}

			for parent, instants := range body {
				slices.Sort(instants)
				server := byID(t, all, parent.String())
				streams := len(instants) >= 2 && instants[len(instants)-1]-instants[0] >= int64(100*ms)
				for id, s := range in {
					if s.ParentSpanID() == parent {
						v, _ := s.Attributes().Get("asgi.event.type")
						require.Equal(t, !streams || v.Str() != "http.response.body", left[id], "%s %s", s.Name(), v.Str())
					}
				}
				if !streams {
					assert.Equal(t, in[parent].EndTimestamp(), server.EndTimestamp())
					continue
				}
				folded += len(instants)
				var gaps []float64
				for i := 1; i < len(instants); i++ {
					gaps = append(gaps, float64(instants[i]-instants[i-1])/1e9)
				}
				slices.Sort(gaps)
				tt := streamOf(t, all, server)
				assert.Equal(t, pcommon.Timestamp(instants[0]), tt.StartTimestamp())
				assertAttrs(t, tt, attrs{
					"stream.chunk.count": len(instants), "stream.chunk.spans_folded": len(instants), "stream.cadence.quality": "exact",
					"stream.chunk.gap.p50": percentile(gaps, 0.5), "stream.chunk.gap.p99": percentile(gaps, 0.99), "stream.chunk.gap.max": gaps[len(gaps)-1],
					"stream.first_chunk.source": "http send", "stream.dialect": "asgi", "stream.source.kind": "SPAN_KIND_SERVER",
				})
				// The log of the attempt that this server span is of. Starlette ends a stream with an empty body message, which the log has not.
				i := slices.IndexFunc(truth, func(w []int64) bool {
					return len(w) > 0 && w[0] >= int64(in[parent].StartTimestamp()) && w[0] <= int64(in[parent].EndTimestamp())
				})
				require.GreaterOrEqual(t, i, 0)
				assert.InDelta(t, truth[i][0], instants[0], float64(5*ms), "the first chunk")
				longest := int64(0)
				for k := 1; k < len(truth[i]); k++ {
					longest = max(longest, truth[i][k]-truth[i][k-1])
				}
				assert.InDelta(t, float64(longest)/1e9, gaps[len(gaps)-1], 0.01, "the longest gap")
				assert.InDelta(t, len(truth[i]), len(instants), 1)
			}

			// One span a request, in any order that has the server span last, gives the same.
			want := contents(t, all)
			rng := rand.New(rand.NewPCG(9, 9))
			h = newHarness(t, folding)
			var single, servers []ptrace.Traces
			for _, td := range exports {
				for _, rs := range td.ResourceSpans().All() {
					for _, ss := range rs.ScopeSpans().All() {
						for _, s := range ss.Spans().All() {
							one := ptrace.NewTraces()
							r := one.ResourceSpans().AppendEmpty()
							rs.Resource().CopyTo(r.Resource())
							r.SetSchemaUrl(rs.SchemaUrl())
							c := r.ScopeSpans().AppendEmpty()
							ss.Scope().CopyTo(c.Scope())
							c.SetSchemaUrl(ss.SchemaUrl())
							s.CopyTo(c.Spans().AppendEmpty())
							if s.Kind() == ptrace.SpanKindServer {
								servers = append(servers, one)
							} else {
								single = append(single, one)
							}
						}
					}
				}
			}
			rng.Shuffle(len(single), func(i, j int) { single[i], single[j] = single[j], single[i] })
			for _, td := range append(single, servers...) {
				h.consume(t, td)
			}
			require.NoError(t, h.Shutdown(context.Background()))
			assert.Equal(t, want, contents(t, h.sink.AllTraces()...))
		})
	}
	assert.Greater(t, folded, 400, "captures of FastAPI")
}
