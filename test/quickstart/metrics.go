// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"strings"

	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelcol-stream/otelcol-stream/test/collector"
)

// distribution is what the connector says about one metric in one scenario.
type distribution struct {
	count    uint64
	sum, max float64
}

func (d distribution) mean() float64 { return d.sum / float64(max(1, d.count)) }

// writeMetrics tells the two tricks once more, in the connector's metrics alone.
func (r *report) writeMetrics(w io.Writer, path string) error {
	exports, err := collector.ReadMetrics(path)
	if err != nil {
		return err
	}
	at := func(metric, scenario string) distribution { return lastOf(exports, metric, scenario) }
	even, small, burst := trickScenarios[0].scenario, trickScenarios[1].scenario, trickScenarios[2].scenario
	fmt.Fprint(w, "\nTHE SAME IN METRICS, before -> after, from the connector's output (mean values of its histograms)\n\n")
	fmt.Fprintf(w, "  smaller chunks:  tokens a second %.1f -> %.1f, tokens a chunk %.1f -> %.1f, gap %s -> %s\n",
		at("stream.token.rate", even).mean(), at("stream.token.rate", small).mean(),
		at("stream.chunk.tokens", even).mean(), at("stream.chunk.tokens", small).mean(),
		formatSeconds(at("stream.chunk.gap", even).mean()), formatSeconds(at("stream.chunk.gap", small).mean()))
	fmt.Fprintf(w, "  head burst:      head burst %.1f -> %.1f, longest gap %s -> %s\n",
		at("stream.head_burst", even).mean(), at("stream.head_burst", burst).mean(),
		formatSeconds(at("stream.chunk.gap.max", even).mean()), formatSeconds(at("stream.chunk.gap.max", burst).mean()))
	return nil
}

// lastOf reads the newest cumulative point of a histogram, explicit or exponential, for the instrumentation that shows the tricks.
func lastOf(exports []pmetric.Metrics, metric, scenario string) distribution {
	var d distribution
	for _, md := range exports {
		for _, rm := range md.ResourceMetrics().All() {
			replayed, ok := rm.Resource().Attributes().Get(captureKey)
			if !ok || replayed.Str() != trickInstrumentation+"/"+scenario {
				continue
			}
			for _, sm := range rm.ScopeMetrics().All() {
				for _, m := range sm.Metrics().All() {
					if m.Name() == metric {
						d = last(m, d)
					}
				}
			}
		}
	}
	return d
}

func last(m pmetric.Metric, d distribution) distribution {
	switch m.Type() {
	case pmetric.MetricTypeHistogram:
		for _, p := range m.Histogram().DataPoints().All() {
			if kind, _ := p.Attributes().Get("span.kind"); isTrickKind(kind.Str()) {
				d = distribution{p.Count(), p.Sum(), p.Max()}
			}
		}
	case pmetric.MetricTypeExponentialHistogram:
		for _, p := range m.ExponentialHistogram().DataPoints().All() {
			if kind, _ := p.Attributes().Get("span.kind"); isTrickKind(kind.Str()) {
				d = distribution{p.Count(), p.Sum(), p.Max()}
			}
		}
	default:
		d = distribution{sum: math.NaN()}
	}
	return d
}

func isTrickKind(kind string) bool {
	return strings.EqualFold(strings.TrimPrefix(kind, "SPAN_KIND_"), trickKind)
}
