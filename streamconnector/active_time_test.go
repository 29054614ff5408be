// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"encoding/csv"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// call is one request of a recorded load, in seconds from the first of its run.
type call struct{ launch, ttft, body float64 }

func (c call) end() float64 { return c.launch + c.ttft + c.body }

func readLoad(t *testing.T) map[string][]call {
	t.Helper()
	f, err := os.Open("testdata/llm-d-benchmark.csv")
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	r := csv.NewReader(f)
	r.Comment = '#'
	rows, err := r.ReadAll()
	require.NoError(t, err)
	runs := map[string][]call{}
	for _, row := range rows {
		number := func(i int) float64 {
			v, err := strconv.ParseFloat(row[i], 64)
			require.NoError(t, err)
			return v
		}
		runs[row[0]] = append(runs[row[0]], call{number(1), number(2), number(3)})
	}
	return runs
}

// open is the true concurrency: how many calls are open at a time.
func open(calls []call, at float64) (n float64) {
	for _, c := range calls {
		if c.launch <= at && at < c.end() {
			n++
		}
	}
	return n
}

// The rate of stream.active_time is the mean number of open streams (Little, "A proof for the queuing formula L = λW", 1961), here against
// the concurrency of real load, counted instant by instant. Over a whole run it is exact. Over a window it lags, since a stream counts
// when it ends: what is missing of those still open, and too much of those opened before, is less than a stream's length for each.
func TestActiveTimeIsConcurrency(t *testing.T) {
	runs := readLoad(t)
	require.Len(t, runs, 3)
	for name, calls := range runs {
		t.Run(name, func(t *testing.T) {
			slices.SortFunc(calls, func(a, b call) int {
				if a.end() < b.end() {
					return -1
				}
				return 1
			})
			last, longest := calls[len(calls)-1].end(), 0.0
			h := newHarness(t)
			const step = 5.0 // s between two exports
			const fine = 0.01
			total := []float64{0}       // of active_time, per export
			truth := []float64{0}       // integral of the concurrency until then
			concurrency := []float64{0} // then
			next := 0
			for at := step; at < last+step; at += step {
				for ; next < len(calls) && calls[next].end() <= at; next++ {
					h.send(t, callSpan(calls[next], next%2 == 0))
					longest = max(longest, calls[next].end()-calls[next].launch)
				}
				integral := truth[len(truth)-1]
				for x := at - step + fine/2; x < at; x += fine {
					integral += open(calls, x) * fine
				}
				sum := 0.0
				if ps := points(h.export(t), "stream.active_time"); len(ps) > 0 {
					require.Len(t, ps, 1)
					sum = ps[0].sum
				}
				total, truth, concurrency = append(total, sum), append(truth, integral), append(concurrency, open(calls, at))
			}

			whole := 0.0
			for _, c := range calls {
				whole += c.ttft + c.body
			}
			end := len(total) - 1
			assert.InDelta(t, whole, total[end], 1e-6*whole)
			assert.InEpsilon(t, truth[end]/last, total[end]/last, 0.001, "mean concurrency of the run")

			window := int(math.Ceil(3 * longest / step))
			for to := window; to <= end; to++ {
				from := to - window
				rate := (total[to] - total[from]) / (float64(window) * step)
				mean := (truth[to] - truth[from]) / (float64(window) * step)
				bound := max(concurrency[from], concurrency[to]) * longest / (float64(window) * step)
				assert.InDelta(t, mean, rate, bound+0.01, "until %v s", float64(to)*step)
			}
			t.Logf("%s: mean concurrency %.2f, from the metric %.2f; longest stream %.1f s", name, truth[end]/last, total[end]/last, longest)
		})
	}
}

// callSpan is a call as the connector gets it: split, or whole.
func callSpan(c call, split bool) ptrace.Traces {
	if split {
		td := streamSpan(map[string]any{"stream.time_to_first_chunk": c.ttft, "stream.duration": c.body})
		s := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
		s.SetStartTimestamp(at(c.launch + c.ttft))
		s.SetEndTimestamp(at(c.end()))
		return td
	}
	td := streamSpan(map[string]any{"stream.phase": "whole", "stream.time_to_first_chunk": c.ttft, "stream.duration": c.body})
	s := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
	s.SetStartTimestamp(at(c.launch))
	s.SetEndTimestamp(at(c.end()))
	return td
}
