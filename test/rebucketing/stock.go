// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/transformprocessor"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/processor/processortest"
)

// stock is the transform processor's conversion of exponential histograms, run as it ships. It has none from explicit to explicit bounds
// but dropping some, and returns nil there. It writes one count fewer than OTLP asks for; the counts are read as what they stand for.
func stock(distribution string) func(histogram, []float64) ([]float64, error) {
	return func(h histogram, target []float64) ([]float64, error) {
		if h.layout.bounds != nil {
			return nil, nil
		}
		text := make([]string, len(target))
		for i, b := range target {
			text[i] = strconv.FormatFloat(b, 'f', -1, 64)
			if !strings.Contains(text[i], ".") {
				text[i] += ".0"
			}
		}
		factory := transformprocessor.NewFactory()
		cfg := factory.CreateDefaultConfig()
		statement := fmt.Sprintf("convert_exponential_histogram_to_histogram(%q, [%s])", distribution, strings.Join(text, ", "))
		if err := confmap.NewFromStringMap(map[string]any{
			"metric_statements": []any{map[string]any{"context": "metric", "statements": []any{statement}}},
		}).Unmarshal(cfg); err != nil {
			return nil, err
		}
		sink := &consumertest.MetricsSink{}
		ctx := context.Background()
		p, err := factory.CreateMetrics(ctx, processortest.NewNopSettings(factory.Type()), cfg, sink)
		if err != nil {
			return nil, err
		}
		if err := p.Start(ctx, componenttest.NewNopHost()); err != nil {
			return nil, err
		}
		md := pmetric.NewMetrics()
		m := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
		m.SetName("d")
		m.SetUnit("s")
		e := m.SetEmptyExponentialHistogram()
		e.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		point := e.DataPoints().AppendEmpty()
		point.SetCount(h.total)
		point.SetScale(h.layout.scale)
		point.Positive().SetOffset(h.offset)
		point.Positive().BucketCounts().FromRaw(h.counts)
		if err := p.ConsumeMetrics(ctx, md); err != nil {
			return nil, err
		}
		if err := p.Shutdown(ctx); err != nil {
			return nil, err
		}
		out := sink.AllMetrics()[0].ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0)
		if out.Type() != pmetric.MetricTypeHistogram {
			return nil, fmt.Errorf("the transform processor left a %s", out.Type())
		}
		counts := out.Histogram().DataPoints().At(0).BucketCounts()
		dst := make([]float64, len(target)+1)
		for j, n := range counts.All() {
			dst[j] = float64(n)
		}
		return shares(dst, float64(h.total)), nil
	}
}
