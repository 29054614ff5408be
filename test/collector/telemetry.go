// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"fmt"
	"maps"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Sample is one series of a Prometheus page: of a counter or gauge the value, of a histogram or summary the count.
type Sample struct {
	Name   string
	Labels map[string]string
	Value  float64
}

// Telemetry reads the collector's own metrics.
func (p *Process) Telemetry(ctx context.Context) ([]Sample, error) {
	return Scrape(ctx, "http://"+p.Endpoints["TELEMETRY"]+"/metrics")
}

// Scrape reads a Prometheus page.
func Scrape(ctx context.Context, url string) ([]Sample, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", url, resp.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	var samples []Sample
	for name, family := range families {
		for _, metric := range family.GetMetric() {
			labels := make(map[string]string, len(metric.GetLabel()))
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			samples = append(samples, Sample{Name: name, Labels: labels, Value: value(metric)})
		}
	}
	return samples, nil
}

func value(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.GetCounter().GetValue()
	case m.Gauge != nil:
		return m.GetGauge().GetValue()
	case m.Histogram != nil:
		return float64(m.GetHistogram().GetSampleCount())
	case m.Summary != nil:
		return float64(m.GetSummary().GetSampleCount())
	default:
		return m.GetUntyped().GetValue()
	}
}

// Sum adds up the series of a name that have these labels; 0 when there are none.
func Sum(samples []Sample, name string, labels map[string]string) float64 {
	var sum float64
	for _, sample := range samples {
		if sample.Name != name {
			continue
		}
		have := maps.Clone(sample.Labels)
		maps.Copy(have, labels)
		if maps.Equal(have, sample.Labels) {
			sum += sample.Value
		}
	}
	return sum
}
