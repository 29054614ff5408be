// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/otelcol-stream/otelcol-stream/internal/rebucket"
)

// timeUnit is the unit of a metric.
type timeUnit uint8

const (
	noTime timeUnit = iota
	seconds
	milliseconds
	microseconds
	nanoseconds
	timeUnits
)

// perSecond is how many of a unit make a second.
var perSecond = [timeUnits]int64{seconds: 1, milliseconds: 1e3, microseconds: 1e6, nanoseconds: 1e9}

var (
	// unitCodes are those of UCUM, which OpenTelemetry uses; micro is written with the micro sign or the Greek letter too.
	unitCodes = map[string]timeUnit{"s": seconds, "ms": milliseconds, "us": microseconds, "µs": microseconds, "μs": microseconds, "ns": nanoseconds}
	// unitWords are those of OpenMetrics.
	unitWords = map[string]timeUnit{"seconds": seconds, "milliseconds": milliseconds, "microseconds": microseconds, "nanoseconds": nanoseconds}
)

// unitOf returns the unit of a metric. Where it has none, its name may end in one, as Prometheus wants names: what is scraped from vLLM or
// SGLang has no other. Anything else is no unit of time: a guess that is wrong by a thousand would look like a measurement.
func unitOf(m pmetric.Metric) timeUnit {
	switch unit := m.Unit(); {
	case unit == "":
		if i := strings.LastIndexByte(m.Name(), '_'); i > 0 {
			return unitWords[m.Name()[i+1:]]
		}
		return noTime
	case unitCodes[unit] != noTime:
		return unitCodes[unit]
	default:
		return unitWords[unit]
	}
}

// histogramRule is a HistogramRule ready for use.
type histogramRule struct {
	index       int
	names       map[string]struct{} // nil if patterns are used
	patterns    []*regexp.Regexp
	attributes  []attributeMatch
	explicit    [timeUnits]*rebucket.Target // none at noTime; none at all if exponential is set
	exponential *rebucket.ExponentialTarget
	dryRun      bool

	tag    attribute.KeyValue
	option metric.MeasurementOption
}

type attributeMatch struct{ key, value string }

func newHistogramRule(index int, cfg *HistogramRule) (*histogramRule, error) {
	r := &histogramRule{index: index, dryRun: cfg.DryRun, tag: attribute.String("rule", strconv.Itoa(index))}
	r.option = metric.WithAttributeSet(attribute.NewSet(r.tag))
	if cfg.MatchType == matchRegexp {
		for i, name := range cfg.MetricNames {
			pattern, err := regexp.Compile(name)
			if err != nil {
				return nil, fmt.Errorf("histograms::%d::metric_names::%d: %w", index, i, err)
			}
			r.patterns = append(r.patterns, pattern)
		}
	} else {
		r.names = make(map[string]struct{}, len(cfg.MetricNames))
		for _, name := range cfg.MetricNames {
			r.names[name] = struct{}{}
		}
	}
	for key, value := range cfg.Attributes {
		v := pcommon.NewValueEmpty()
		if err := v.FromRaw(value); err != nil {
			return nil, fmt.Errorf("histograms::%d::attributes::%s: %w", index, key, err)
		}
		r.attributes = append(r.attributes, attributeMatch{key, v.AsString()})
	}
	density := densities[cfg.Density]
	if cfg.Exponential != nil {
		size := rebucket.ExponentialSize{MaxSize: int(cfg.Exponential.MaxSize), MaxScale: int32(cfg.Exponential.MaxScale)}
		r.exponential = rebucket.NewExponentialTarget(size, density)
		return r, nil
	}
	if cfg.Explicit == nil {
		return nil, fmt.Errorf("histograms::%d: needs explicit or exponential", index)
	}
	for unit, factor := range perSecond {
		if factor == 0 {
			continue
		}
		t, err := rebucket.NewTarget(rebucket.Scale(cfg.Explicit.bounds(), factor), density, cfg.Overflow != overflowKeep)
		if err != nil {
			return nil, fmt.Errorf("histograms::%d::explicit::boundaries: %w", index, err)
		}
		r.explicit[unit] = t
	}
	return r, nil
}

func (r *histogramRule) toExponential() bool { return r.exponential != nil }

func (r *histogramRule) toExplicit() bool { return r.exponential == nil }

func (r *histogramRule) matches(name string) bool {
	if r.names != nil {
		_, ok := r.names[name]
		return ok
	}
	for _, p := range r.patterns {
		if p.MatchString(name) {
			return true
		}
	}
	return false
}

// matchesPoint compares values as text: a configuration file does not always tell 200 from "200".
func (r *histogramRule) matchesPoint(attributes pcommon.Map) bool {
	for _, want := range r.attributes {
		have, ok := attributes.Get(want.key)
		if !ok || have.AsString() != want.value {
			return false
		}
	}
	return true
}
