// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// readCase reads one of the small inputs made after public bug reports; what is right is in the .expect.md beside it.
func readCase(t *testing.T, name string) ptrace.Traces {
	t.Helper()
	td, err := golden.ReadTraces(filepath.Join("..", "streamprocessor", "testdata", "cases", name+".json"))
	require.NoError(t, err)
	return td
}

func TestCaseTTFTOnNonStreaming(t *testing.T) {
	for path, td := range inputs(t, readCase(t, "02-ttft-on-non-streaming")) {
		h := newHarness(t)
		h.send(t, td)
		assert.Zero(t, h.export(t).ResourceMetrics().Len(), path)
	}
}

func TestCaseImpossibleTimes(t *testing.T) {
	for path, td := range inputs(t, readCase(t, "06-impossible-times")) {
		h := newHarness(t)
		h.send(t, td)
		md := h.export(t)
		ttfc := only(t, md, "stream.time_to_first_chunk")
		assert.EqualValues(t, 1, ttfc.count, "%s: c alone", path)
		assert.InDelta(t, 0.3, ttfc.sum, 1e-9, path)
		assert.InDelta(t, 1.7, only(t, md, "stream.duration").sum, 1e-9, path)
		assert.InDelta(t, 50, only(t, md, "stream.token.rate").sum, 1e-9, path)
		assert.LessOrEqual(t, only(t, md, "stream.active_time").sum, 4.0, "%s: nothing near 2^64 ns", path)
	}
}

func TestCasePartial(t *testing.T) {
	for path, td := range inputs(t, readCase(t, "04-event-limit-dropped-oldest")) {
		h := newHarness(t)
		h.send(t, td)
		md := h.export(t)
		firstChunk := map[any]uint64{}
		for _, p := range points(md, "stream.count") {
			assert.Equal(t, "partial", p.attributes["stream.cadence.quality"], path)
			firstChunk[p.attributes["stream.first_chunk"]] += p.count
		}
		assert.Equal(t, map[any]uint64{"known": 1, "unknown": 1}, firstChunk, path)
		var chunks float64
		for _, p := range points(md, "stream.chunk.count") {
			chunks += p.sum
		}
		assert.InDelta(t, 600, chunks, 0, path)
		assert.Empty(t, points(md, "stream.fluidity"), path)
	}
}

// Equal tokens per second in four times as many chunks: tokens per chunk tells them apart, the rate and the duration do not.
func TestCaseSmallerChunks(t *testing.T) {
	for path, td := range inputs(t, readCase(t, "16-same-rate-smaller-chunks")) {
		spans := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
		models := map[string]int{}
		for _, s := range spans.All() {
			// One series for each of the two, whatever the case calls their models.
			key := s.TraceID().String()
			if _, ok := models[key]; !ok {
				models[key] = len(models)
			}
			s.Attributes().PutStr("gen_ai.request.model", strconv.Itoa(models[key]))
		}
		h := newHarness(t)
		h.send(t, td)
		md := h.export(t)
		get := func(metric string) (sums [2]float64) {
			ps := points(md, metric)
			require.Len(t, ps, 2, "%s %s", path, metric)
			for _, p := range ps {
				i, err := strconv.Atoi(p.attributes["gen_ai.request.model"].(string))
				require.NoError(t, err)
				sums[i] = p.sum
			}
			return sums
		}
		assert.Equal(t, [2]float64{3.625, 1}, get("stream.chunk.tokens"), path)
		assert.Equal(t, [2]float64{8, 29}, get("stream.chunk.count"), path)
		for metric, want := range map[string]float64{"stream.token.rate": 10, "stream.duration": 2.9} {
			got := get(metric)
			assert.InDelta(t, want, got[0], 1e-9, "%s %s", path, metric)
			assert.InDelta(t, want, got[1], 1e-9, "%s %s", path, metric)
		}
	}
}
