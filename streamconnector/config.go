// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
)

const (
	temporalityCumulative = "cumulative"
	temporalityDelta      = "delta"

	histogramExplicit    = "explicit"
	histogramExponential = "exponential"

	// allResourceAttributes, as the only element of resource_attributes, keeps every attribute.
	allResourceAttributes = "all"
)

// Config is the configuration of the connector.
type Config struct {
	// Namespace is the first part of the name of every metric but the GenAI ones. Default: stream.
	Namespace string `mapstructure:"namespace"`
	// GenAIPrefix is the first part of the names of the metrics of the GenAI semantic conventions. Empty switches them off. Default:
	// gen_ai.client.operation.
	GenAIPrefix string `mapstructure:"gen_ai_prefix"`
	// GenAIDuration adds the convention's .duration, which an SDK that has the convention's metrics already writes. Default: false.
	GenAIDuration bool `mapstructure:"gen_ai_duration"`
	// Histogram is the layout of the histograms.
	Histogram HistogramConfig `mapstructure:"histogram"`
	// Dimensions are attributes of the span, or else of its resource, that every metric of the namespace gets besides the defaults.
	Dimensions []DimensionConfig `mapstructure:"dimensions"`
	// ResourceAttributes are the resource attributes to keep: all, or a list of names, which may be empty. Streams whose kept attributes are
	// equal share series. Default: all.
	ResourceAttributes []string `mapstructure:"resource_attributes"`
	// IncludeNested counts every streaming span of a call that several spans describe. Default: false.
	IncludeNested bool `mapstructure:"include_nested"`
	// AggregationTemporality is cumulative or delta. Default: cumulative.
	AggregationTemporality string `mapstructure:"aggregation_temporality"`
	// MetricsFlushInterval is the time between two exports. Default: 15s.
	MetricsFlushInterval time.Duration `mapstructure:"metrics_flush_interval"`
	// MetricsExpiration is the time without a stream after which a series ends; 0 is never. Default: 5m.
	MetricsExpiration time.Duration `mapstructure:"metrics_expiration"`
	// AggregationCardinalityLimit is the most series that a metric may have for one resource, and the most resources; what is beyond goes
	// to a series, or a resource, with otel.metric.overflow. 0 is no limit. Default: 2000.
	AggregationCardinalityLimit int `mapstructure:"aggregation_cardinality_limit"`
	// Exemplars of the histograms.
	Exemplars ExemplarsConfig `mapstructure:"exemplars"`
}

// HistogramConfig is the layout of the histograms.
type HistogramConfig struct {
	// Type is explicit or exponential. Default: explicit.
	Type string `mapstructure:"type"`
	// Boundaries replaces the boundaries of explicit histograms, by the full name of the metric.
	Boundaries map[string][]float64 `mapstructure:"boundaries"`
	// MaxSize is the most buckets of an exponential histogram. Default: 160.
	MaxSize int `mapstructure:"max_size"`
}

// DimensionConfig is an attribute of the span, or else of its resource, that becomes an attribute of the metrics.
type DimensionConfig struct {
	// Name is the key of the attribute.
	Name string `mapstructure:"name"`
	// Default is the value where neither has the attribute. Without it the attribute is left out there.
	Default *string `mapstructure:"default"`
}

// ExemplarsConfig says which exemplars the histograms carry.
type ExemplarsConfig struct {
	// Enabled adds the trace and span ids of some of the streams. Default: true.
	Enabled bool `mapstructure:"enabled"`
	// MaxPerDataPoint is the most exemplars of one data point. Default: 5.
	MaxPerDataPoint int `mapstructure:"max_per_data_point"`
}

var (
	_ component.Config  = (*Config)(nil)
	_ confmap.Validator = (*Config)(nil)
)

// Validate checks the configuration. An error names the key and the value.
func (c *Config) Validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if !isName(c.Namespace) {
		fail("namespace: %q is not the beginning of a metric name", c.Namespace)
	}
	if c.GenAIPrefix != "" && !isName(c.GenAIPrefix) {
		fail("gen_ai_prefix: %q is not the beginning of a metric name", c.GenAIPrefix)
	}
	if c.GenAIPrefix == "" && c.GenAIDuration {
		fail("gen_ai_duration: true has no effect while gen_ai_prefix is empty")
	}
	if c.Namespace == c.GenAIPrefix {
		fail("gen_ai_prefix: %q is the namespace too, so that metrics would share names", c.GenAIPrefix)
	}
	if c.AggregationTemporality != temporalityCumulative && c.AggregationTemporality != temporalityDelta {
		fail("aggregation_temporality: %q is neither cumulative nor delta", c.AggregationTemporality)
	}
	if c.MetricsFlushInterval <= 0 {
		fail("metrics_flush_interval: %v is not positive", c.MetricsFlushInterval)
	}
	if c.MetricsExpiration < 0 {
		fail("metrics_expiration: %v is negative; 0 is never", c.MetricsExpiration)
	}
	if c.AggregationCardinalityLimit < 0 {
		fail("aggregation_cardinality_limit: %d is negative; 0 is no limit", c.AggregationCardinalityLimit)
	}
	if n := c.Exemplars.MaxPerDataPoint; n < 0 || n == 0 && c.Exemplars.Enabled {
		fail("exemplars::max_per_data_point: %d is not positive; set exemplars::enabled to false for none", n)
	}
	errs = append(errs, c.validateAttributes(), c.validateHistogram())
	return errors.Join(errs...)
}

// validateAttributes checks what names attributes.
func (c *Config) validateAttributes() error {
	var errs []error
	seen := map[string]bool{}
	for i, d := range c.Dimensions {
		switch {
		case d.Name == "":
			errs = append(errs, fmt.Errorf("dimensions[%d]::name is empty", i))
		case isOwnAttribute(d.Name):
			errs = append(errs, fmt.Errorf("dimensions[%d]::name: %q is an attribute that the connector writes itself", i, d.Name))
		case seen[d.Name]:
			errs = append(errs, fmt.Errorf("dimensions[%d]::name: %q is there twice", i, d.Name))
		}
		seen[d.Name] = true
	}
	clear(seen)
	for i, name := range c.ResourceAttributes {
		switch {
		case name == allResourceAttributes && len(c.ResourceAttributes) > 1:
			errs = append(errs, fmt.Errorf("resource_attributes[%d]: %q must stand alone", i, name))
		case name == "" || seen[name]:
			errs = append(errs, fmt.Errorf("resource_attributes[%d]: %q is empty or there twice", i, name))
		}
		seen[name] = true
	}
	return errors.Join(errs...)
}

func (c *Config) validateHistogram() error {
	var errs []error
	if c.Histogram.MaxSize < 2 {
		errs = append(errs, fmt.Errorf("histogram::max_size: %d is less than 2", c.Histogram.MaxSize))
	}
	switch c.Histogram.Type {
	case histogramExplicit:
		errs = append(errs, c.validateBoundaries())
	case histogramExponential:
		if len(c.Histogram.Boundaries) > 0 {
			errs = append(errs, errors.New("histogram::boundaries has no effect while histogram::type is exponential"))
		}
	default:
		errs = append(errs, fmt.Errorf("histogram::type: %q is neither explicit nor exponential", c.Histogram.Type))
	}
	return errors.Join(errs...)
}

func (c *Config) validateBoundaries() error {
	var errs []error
	names := histogramNames(c)
	for _, name := range slices.Sorted(maps.Keys(c.Histogram.Boundaries)) {
		if !slices.Contains(names, name) {
			errs = append(errs, fmt.Errorf("histogram::boundaries: no histogram has the name %q; there are %s", name, strings.Join(names, ", ")))
			continue
		}
		if err := checkBoundaries(c.Histogram.Boundaries[name]); err != nil {
			errs = append(errs, fmt.Errorf("histogram::boundaries::%s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func checkBoundaries(bounds []float64) error {
	if len(bounds) == 0 {
		return errors.New("the list is empty")
	}
	for i, b := range bounds {
		if math.IsNaN(b) || math.IsInf(b, 0) || b < 0 {
			return fmt.Errorf("%v is not a finite number of 0 or more", b)
		}
		if i > 0 && b <= bounds[i-1] {
			return fmt.Errorf("%v does not ascend after %v", b, bounds[i-1])
		}
	}
	return nil
}

// isName reports whether s can begin the name of an OpenTelemetry instrument: a letter, then letters, digits, '_', '.', '-' and '/'.
func isName(s string) bool {
	for i, r := range s {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || !strings.ContainsRune("0123456789_.-/", r)) {
			return false
		}
	}
	return s != ""
}

func (c *Config) keepsAllResourceAttributes() bool {
	return len(c.ResourceAttributes) == 1 && c.ResourceAttributes[0] == allResourceAttributes
}
