// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/transformprocessor"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelcol-stream/otelcol-stream/bench/internal/payload"
	"github.com/otelcol-stream/otelcol-stream/streamprocessor"
)

const points = 1_000

// target are the 16 boundaries that exponential histograms are brought to: 2^-6 s to 2^9 s. Powers of two are bounds of every exponential
// layout, so that the result is exact and can be checked.
func target() []float64 {
	all := payload.ExplicitBoundaries()
	return all[4:20]
}

// every second of the source's boundaries.
func coarser() (bounds []float64) {
	for i, v := range payload.ExplicitBoundaries() {
		if i%2 == 1 {
			bounds = append(bounds, v)
		}
	}
	return bounds
}

func BenchmarkExponentialUnmarshal(b *testing.B) { unmarshalMetrics(b, payload.Exponential(points)) }
func BenchmarkExplicitUnmarshal(b *testing.B)    { unmarshalMetrics(b, payload.Explicit(points)) }

func unmarshalMetrics(b *testing.B, md pmetric.Metrics) {
	decode, _ := metricsOf(b, md)
	var out pmetric.Metrics
	measure(b, points, func() struct{} { return struct{}{} }, func(struct{}) { out = decode() })
	require.Equal(b, points, out.DataPointCount())
}

func rebucket(b *testing.B, md pmetric.Metrics, boundaries []float64, expected func(md pmetric.Metrics, i int) []uint64) {
	decode, _ := metricsOf(b, md)
	sink := &metricsSink{}
	p := startMetrics(b, streamprocessor.NewFactory(), settings{"histograms": []any{settings{
		"metric_names": []any{payload.HistogramName}, "explicit": settings{"boundaries": boundaries},
	}}}, sink)
	send := consumeMetrics(b, p)
	send(decode())
	checkPoints(b, md, sink.last, boundaries, expected)
	measure(b, points, decode, send)
	checkPoints(b, md, sink.last, boundaries, expected)
}

func checkPoints(b *testing.B, in, out pmetric.Metrics, boundaries []float64, expected func(md pmetric.Metrics, i int) []uint64) {
	b.Helper()
	m := onlyMetric(out)
	require.Equal(b, pmetric.MetricTypeHistogram, m.Type())
	require.Equal(b, points, m.Histogram().DataPoints().Len())
	for i, dp := range m.Histogram().DataPoints().All() {
		require.Equal(b, boundaries, dp.ExplicitBounds().AsRaw())
		require.Equal(b, expected(in, i), dp.BucketCounts().AsRaw())
	}
}

func onlyMetric(md pmetric.Metrics) pmetric.Metric {
	return md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0)
}

func BenchmarkExponentialProcessor(b *testing.B) {
	rebucket(b, payload.Exponential(points), target(), exponentialCounts)
}

// exponentialCounts adds up the buckets between the boundaries: at scale 3, bucket i ends at 2^((i+1)/8).
func exponentialCounts(md pmetric.Metrics, i int) []uint64 {
	dp := onlyMetric(md).ExponentialHistogram().DataPoints().At(i)
	counts := make([]uint64, len(target())+1)
	const least = -6 // exponent of the lowest boundary
	for j, n := range dp.Positive().BucketCounts().All() {
		index := int(dp.Positive().Offset()) + j
		counts[min(max((index>>3)+1-least, 0), len(target()))] += n
	}
	return counts
}

func BenchmarkExplicitProcessor(b *testing.B) {
	rebucket(b, payload.Explicit(points), coarser(), explicitCounts)
}

func explicitCounts(md pmetric.Metrics, i int) []uint64 {
	dp := onlyMetric(md).Histogram().DataPoints().At(i)
	counts := make([]uint64, len(coarser())+1)
	for j, n := range dp.BucketCounts().All() {
		counts[(j+0)/2] += n
	}
	return counts
}

// BenchmarkExponentialTransform converts with the midpoint rule, which of the four rules is the closest to right and among the cheapest.
func BenchmarkExponentialTransform(b *testing.B) {
	decode, _ := metricsOf(b, payload.Exponential(points))
	sink := &metricsSink{}
	bounds := strings.Join(strings.Fields(fmt.Sprintf("%f", target())), ", ")
	p := startMetrics(b, transformprocessor.NewFactory(), settings{
		"error_mode": "propagate",
		"metric_statements": []any{settings{
			"context":    "metric",
			"statements": []string{`convert_exponential_histogram_to_histogram("midpoint", ` + bounds + `)`},
		}},
	}, sink)
	send := consumeMetrics(b, p)
	measure(b, points, decode, send)
	m := onlyMetric(sink.last)
	require.Equal(b, pmetric.MetricTypeHistogram, m.Type())
	require.Equal(b, points, m.Histogram().DataPoints().Len())
	require.True(b, slices.Equal(target(), m.Histogram().DataPoints().At(0).ExplicitBounds().AsRaw()))
}
