// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"flag"
	"path/filepath"
	"testing"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/pmetrictest"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// What goes out for two streams of different models, to the last field. The numbers in the files are held against the spans by the other
// tests; these show what a metric looks like and keep it from changing unnoticed.
func TestGolden(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"cumulative_explicit": func(*Config) {},
		"delta_exponential":   func(c *Config) { c.AggregationTemporality, c.Histogram.Type = "delta", "exponential" },
		"genai_dimensions": func(c *Config) {
			none := "none"
			c.Namespace, c.GenAIDuration, c.Exemplars.Enabled = "llm", true, false
			c.Dimensions, c.ResourceAttributes = []DimensionConfig{{Name: "http.route", Default: &none}}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, change)
			other := chunked{model: "n", end: 1, tokens: 8, chunks: []float64{0.25, 0.5, 0.75}, attributes: map[string]any{"gen_ai.operation.name": "chat"}}
			h.send(t, raw(stalling(), other))
			got, file := h.export(t), filepath.Join("testdata", "golden", name+".yaml")
			if *update {
				require.NoError(t, golden.WriteMetricsToFile(file, got, golden.SkipMetricTimestampNormalization()))
			}
			want, err := golden.ReadMetrics(file)
			require.NoError(t, err)
			require.NoError(t, pmetrictest.CompareMetrics(want, got))
		})
	}
}
