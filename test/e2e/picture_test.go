// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-stream/otelcol-stream/test/collector"
	"github.com/otelcol-stream/otelcol-stream/test/prometheus"
)

// picturePhase is a stretch of the picture's time axis.
type picturePhase struct {
	Name string  `json:"name"`
	From float64 `json:"from"` // seconds from the left edge
}

// pictureSeries is one line.
type pictureSeries struct {
	Panel string       `json:"panel"`
	Unit  string       `json:"unit"`
	Label string       `json:"label"`
	Query string       `json:"query"`
	Data  [][2]float64 `json:"data"` // seconds from the left edge, value
}

// TestPictureData asks a real Prometheus for what the picture in the README shows, and writes it to the file PICTURE_DATA:
// one model whose provider changes its behaviour every 40 seconds. It tests nothing, so it runs only when asked for;
// docs/images/README.md has the command.
func TestPictureData(t *testing.T) {
	path := os.Getenv("PICTURE_DATA")
	if path == "" {
		t.Skip("PICTURE_DATA names no file")
	}
	const phaseTime, perSecond = 40 * time.Second, 6
	schedules := []struct{ name, capture string }{
		{"4 tokens a chunk", "smooth4"},
		{"1 token a chunk", "smooth1"},
		{"half the speed", "slow4"},
		{"burst, then a trickle", "headburst"},
		{"frozen for 3 s", "stall3s"},
	}
	c := collector.StartWith(t, collector.Options{
		Configs: []string{filepath.Join(prometheus.Example(collector.Root()), "config.yaml"), `
connectors:
  stream:
    metrics_flush_interval: 1s
`},
		Ports: []string{"PROMETHEUS"},
	})
	server, err := prometheus.Run(t.Context(), prometheus.Options{
		Dir:     prometheus.Example(collector.Root()),
		Targets: map[string]string{"127.0.0.1:9464": c.Endpoints["PROMETHEUS"], "127.0.0.1:8888": c.Endpoints["TELEMETRY"]},
		Work:    t.TempDir(),
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Stop()) }()

	picture := struct {
		Phases []picturePhase  `json:"phases"`
		Series []pictureSeries `json:"series"`
		Length float64         `json:"length"`
	}{}
	// Before the left edge, so that no line begins with an empty window.
	load(t, c, []cohort{{before: source{recorded(t, schedules[0].capture), perSecond}}}, 15*time.Second, func(c cohort) source { return c.before })
	begun := time.Now()
	for _, schedule := range schedules {
		picture.Phases = append(picture.Phases, picturePhase{schedule.name, time.Since(begun).Seconds()})
		load(t, c, []cohort{{before: source{recorded(t, schedule.capture), perSecond}}}, phaseTime, func(c cohort) source { return c.before })
	}
	end := time.Now()
	picture.Length = end.Sub(begun).Seconds()

	for _, series := range []pictureSeries{
		{Panel: "Request, start to end", Unit: "s", Label: "mean", Query: `rate(stream_active_time_seconds_total[10s]) / on () sum(rate(stream_count_total[10s]))`},
		{Panel: "Tokens per second", Unit: "1/s", Label: "mean", Query: `rate(stream_token_rate_per_second_sum[10s]) / rate(stream_token_rate_per_second_count[10s])`},
		{Panel: "Time to first chunk", Unit: "s", Label: "p95", Query: `histogram_quantile(0.95, rate(stream_time_to_first_chunk_seconds_bucket[10s]))`},
		{Panel: "Tokens per chunk", Unit: "", Label: "mean", Query: `rate(stream_chunk_tokens_sum[10s]) / rate(stream_chunk_tokens_count[10s])`},
		{Panel: "Gap between chunks", Unit: "s", Label: "p50", Query: `histogram_quantile(0.50, rate(stream_chunk_gap_seconds_bucket[10s]))`},
		{Panel: "Gap between chunks", Unit: "s", Label: "p99", Query: `histogram_quantile(0.99, rate(stream_chunk_gap_seconds_bucket[10s]))`},
		{Panel: "Head burst", Unit: "× even", Label: "p50", Query: `histogram_quantile(0.5, rate(stream_head_burst_bucket[10s]))`},
		{Panel: "Stalls per stream", Unit: "", Label: "mean", Query: `rate(stream_stall_count_total[10s]) / rate(stream_chunk_gap_max_seconds_count[10s])`},
		{Panel: "Open streams", Unit: "", Label: "mean", Query: `rate(stream_active_time_seconds_total[10s])`},
	} {
		value, _, queryErr := server.API.QueryRange(t.Context(), series.Query, v1.Range{Start: begun, End: end, Step: time.Second})
		require.NoError(t, queryErr)
		matrix, ok := value.(model.Matrix)
		require.True(t, ok)
		require.Len(t, matrix, 1, series.Query)
		for _, sample := range matrix[0].Values {
			series.Data = append(series.Data, [2]float64{sample.Timestamp.Time().Sub(begun).Seconds(), float64(sample.Value)})
		}
		picture.Series = append(picture.Series, series)
	}
	raw, err := json.MarshalIndent(picture, "", " ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, append(raw, '\n'), 0o600))
}
