// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/test/captures"
)

// chunkInstants reads the chunk instants off a raw span, apart from the code under test: two or more events by the names of the
// instrumentations that write one per chunk, or gRPC messages in the direction of the response.
func chunkInstants(s ptrace.Span) []pcommon.Timestamp {
	mlflow := regexp.MustCompile(`^mlflow\.chunk\.item\.\d+$`)
	direction := "RECEIVED"
	if s.Kind() == ptrace.SpanKindServer {
		direction = "SENT"
	}
	var instants []pcommon.Timestamp
	for _, e := range s.Events().All() {
		message, _ := e.Attributes().Get("message.type")
		if e.Name() == "gen_ai.content.completion.chunk" || mlflow.MatchString(e.Name()) || e.Name() == "message" && message.AsString() == direction {
			at := e.Timestamp()
			if at < s.StartTimestamp()/100 {
				at *= 1000 // MLflow 2 writes microseconds where nanoseconds belong
			}
			instants = append(instants, at)
		}
	}
	slices.Sort(instants)
	if len(instants) < 2 {
		return nil
	}
	return instants
}

func hasGenAIKey(s ptrace.Span) bool {
	for key := range s.Attributes().All() {
		if strings.HasPrefix(key, "gen_ai.") || strings.HasPrefix(key, "llm.") || strings.HasPrefix(key, "ai.") {
			return true
		}
	}
	return false
}

// TestCapturesAgainstTheirSpans holds the gap histogram of every capture with chunk instants against the spans themselves: counts exactly,
// sums to 1e-9, buckets exactly from raw spans and, on powers of two, from split spans.
func TestCapturesAgainstTheirSpans(t *testing.T) {
	all, err := captures.All("..")
	require.NoError(t, err)
	checked := map[string]int{}
	split := newProcessor(t)
	// Of delta temporality, so that each export is of one batch.
	explicit := newHarness(t, func(c *Config) { c.IncludeNested, c.AggregationTemporality = true, "delta" })
	exponential := newHarness(t, func(c *Config) {
		c.IncludeNested, c.AggregationTemporality, c.Histogram.Type, c.Histogram.MaxSize = true, "delta", "exponential", 1000
	})
	for _, capture := range all {
		exports, err := capture.Traces()
		require.NoError(t, err)
		for i, td := range exports {
			var gaps, genAIGaps []float64
			streams := 0
			for _, rs := range td.ResourceSpans().All() {
				for _, ss := range rs.ScopeSpans().All() {
					for _, s := range ss.Spans().All() {
						instants := chunkInstants(s)
						if instants != nil {
							streams++
						}
						for j := 1; j < len(instants); j++ {
							gap := float64(instants[j]-instants[j-1]) / 1e9
							gaps = append(gaps, gap)
							if hasGenAIKey(s) && s.Kind() != ptrace.SpanKindServer {
								genAIGaps = append(genAIGaps, gap)
							}
						}
					}
				}
			}
			if streams == 0 {
				continue
			}
			checked[capture.Instrumentation] += streams
			name := fmt.Sprintf("%s export %d", capture.Name(), i)
			for path, batch := range map[string]ptrace.Traces{"raw": td, "split": split(td)} {
				explicit.send(t, batch)
				md := explicit.export(t)
				assertGaps(t, name+" "+path, md, "stream.chunk.gap", gaps, true)
				assertGaps(t, name+" "+path, md, "gen_ai.client.operation.time_per_output_chunk", genAIGaps, path == "raw")

				exponential.send(t, batch)
				assertGaps(t, name+" "+path, exponential.export(t), "stream.chunk.gap", gaps, true)
			}
		}
	}
	for _, instrumentation := range []string{"go-otelgrpc-v0.60", "python/mlflow-openai", "python/openllmetry-openai"} {
		assert.Greater(t, checked[instrumentation], 5, "%v", checked)
	}
}

// assertGaps compares the data points of one metric, all series together, with the values.
func assertGaps(t *testing.T, name string, md pmetric.Metrics, metric string, want []float64, buckets bool) {
	t.Helper()
	var count uint64
	var sum, wantSum float64
	for _, g := range want {
		wantSum += g
	}
	got := map[float64]uint64{} // by upper bound, as far as that tells buckets apart
	wantBuckets := map[float64]uint64{}
	for k, p := range points(md, metric) {
		count += p.count
		sum += p.sum
		if p.bounds == nil {
			continue
		}
		upper := append(slices.Clone(p.bounds), maxValue)
		for i, n := range p.counts {
			if n > 0 {
				got[upper[i]] += n
			}
		}
		for _, g := range want {
			if k == 0 {
				wantBuckets[upper[bucketOf(p.bounds, g)]]++
			}
		}
	}
	assert.EqualValues(t, len(want), count, "%s %s", name, metric)
	assert.InDelta(t, wantSum, sum, 1e-9, "%s %s", name, metric)
	if buckets {
		assert.Equal(t, wantBuckets, got, "%s %s", name, metric)
	}
}

// TestRawAndSplitAgree holds both paths against each other on every capture and for every metric: same series, same counts, same sums,
// and same buckets but where the conventions' ladder cuts a bucket of the gap histogram.
func TestRawAndSplitAgree(t *testing.T) {
	all, err := captures.All("..")
	require.NoError(t, err)
	compared := 0
	for _, kind := range []string{"explicit", "exponential"} {
		configure := func(c *Config) { c.GenAIDuration, c.Histogram.Type, c.AggregationTemporality = true, kind, "delta" }
		split, fromRaw, fromSplit := newProcessor(t), newHarness(t, configure), newHarness(t, configure)
		for _, capture := range all {
			exports, err := capture.Traces()
			require.NoError(t, err)
			for _, td := range exports {
				fromRaw.send(t, td)
				fromSplit.send(t, split(td))
			}
			want, got := fromRaw.export(t), fromSplit.export(t)
			assert.Equal(t, names(want), names(got), capture.Name())
			for _, n := range names(want) {
				w, g := byAttributes(points(want, n)), byAttributes(points(got, n))
				assert.Len(t, g, len(w), "%s %s", capture.Name(), n)
				for key, wp := range w {
					gp, ok := g[key]
					if !assert.True(t, ok, "%s %s: no series %s", capture.Name(), n, key) {
						continue
					}
					assert.Equal(t, wp.count, gp.count, "%s %s", capture.Name(), n)
					assert.InDelta(t, wp.sum, gp.sum, 1e-9*max(1, wp.sum), "%s %s", capture.Name(), n)
					if !strings.HasSuffix(n, "time_per_output_chunk") {
						assert.Equal(t, wp.counts, gp.counts, "%s %s", capture.Name(), n)
						assert.Equal(t, wp.zero, gp.zero, "%s %s", capture.Name(), n)
					}
					compared++
				}
			}
		}
	}
	assert.Greater(t, compared, 1000)
}

func byAttributes(ps []point) map[string]point {
	m := map[string]point{}
	for _, p := range ps {
		m[fmt.Sprint(p.resource, p.attributes)] = p
	}
	return m
}
