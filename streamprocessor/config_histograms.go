// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/confmap"

	"github.com/otelcol-stream/otelcol-stream/internal/rebucket"
)

// HistogramRule is one rule of re-bucketing: which histograms, and to which layout.
type HistogramRule struct {
	// MetricNames lists the metrics that the rule is for, as MatchType says.
	MetricNames []string `mapstructure:"metric_names"`
	// MatchType is strict, for whole names, or regexp, for patterns that match anywhere in a name unless anchored. Default: strict.
	MatchType MatchType `mapstructure:"match_type"`
	// Attributes lists what a point must have, with its values, for the rule to apply to it.
	Attributes map[string]any `mapstructure:"attributes"`
	// Explicit asks for explicit boundaries. One of Explicit and Exponential is needed.
	Explicit *ExplicitConfig `mapstructure:"explicit"`
	// Exponential asks for base-2 exponential buckets.
	Exponential *ExponentialConfig `mapstructure:"exponential"`
	// Density is how observations are taken to lie inside of a source bucket that a boundary cuts: linear, log, or auto, which is linear for
	// explicit and log for exponential sources. Default: auto.
	Density DensityName `mapstructure:"density"`
	// Overflow is cut, where boundaries above the source's last boundary go and that one comes in, or keep, where the layout is fixed and
	// observations above the source's last boundary stay above all. Default: cut.
	Overflow OverflowPolicy `mapstructure:"overflow"`
	// DryRun reports what would happen without changing data. Default: false.
	DryRun bool `mapstructure:"dry_run"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// ExplicitConfig is a list of boundaries, given or by name.
type ExplicitConfig struct {
	// Boundaries are the upper bounds of all buckets but the last, in seconds.
	Boundaries Boundaries `mapstructure:"boundaries"`
	// Preset is the name of a well-known list of boundaries.
	Preset PresetName `mapstructure:"preset"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// ExponentialConfig limits exponential buckets.
type ExponentialConfig struct {
	// MaxSize is the largest number of buckets in the positive and in the negative range. Default: 160.
	MaxSize MaxSize `mapstructure:"max_size"`
	// MaxScale is the finest scale. Default: 20.
	MaxScale MaxScale `mapstructure:"max_scale"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// Types of single settings, so that an error of one carries its whole path.
type (
	// MatchType is how metric names are compared.
	MatchType string
	// DensityName names an assumption about the inside of a bucket.
	DensityName string
	// OverflowPolicy is what becomes of boundaries that the source says nothing about.
	OverflowPolicy string
	// PresetName names a list of boundaries.
	PresetName string
	// Boundaries are strictly increasing, in seconds.
	Boundaries []float64
	// MaxSize is a number of buckets.
	MaxSize int
	// MaxScale is a scale of exponential buckets.
	MaxScale int32
)

// Values of the settings of a rule. An empty one is the default, which comes first.
const (
	matchStrict MatchType = "strict"
	matchRegexp MatchType = "regexp"

	densityAuto   DensityName = "auto"
	densityLinear DensityName = "linear"
	densityLog    DensityName = "log"

	overflowCut  OverflowPolicy = "cut"
	overflowKeep OverflowPolicy = "keep"
)

const (
	defaultMaxSize  = 160
	defaultMaxScale = rebucket.MaxScale
	largestMaxSize  = 10_000
	// largestBoundary keeps boundaries finite in nanoseconds; in seconds it is beyond the age of the universe.
	largestBoundary = 1e18
)

var densities = map[DensityName]rebucket.Density{
	"": rebucket.Auto, densityAuto: rebucket.Auto, densityLinear: rebucket.Linear, densityLog: rebucket.Log,
}

// presets are lists that others ship, in seconds, and the ladders of the stream connector. The latter are powers of two: exact from every
// exponential source.
var presets = map[PresetName][]float64{
	// OpenTelemetry semantic conventions: client durations, time to first chunk and time per output chunk; server durations.
	"genai.client": {0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92},
	// The same, gen_ai.server.time_to_first_token and gen_ai.server.time_per_output_token.
	"genai.server.ttft": {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10},
	"genai.server.tpot": {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5},
	// The same, HTTP durations.
	"http": {0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10},
	// vllm:time_to_first_token_seconds, vllm:inter_token_latency_seconds, vllm:e2e_request_latency_seconds.
	"vllm.ttft": {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560},
	"vllm.itl":  {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80},
	"vllm.e2e":  {0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680},
	// sglang:time_to_first_token_seconds, sglang:inter_token_latency_seconds.
	"sglang.ttft": {0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400},
	"sglang.itl":  {0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8},
	// stream.time_to_first_chunk and stream.chunk.gap, stream.duration.
	"stream.ttfc":     powersOfTwo(-10, 6),
	"stream.gap":      powersOfTwo(-10, 6),
	"stream.duration": powersOfTwo(-3, 12),
}

func powersOfTwo(from, to int) []float64 {
	bounds := make([]float64, 0, to-from+1)
	for k := from; k <= to; k++ {
		bounds = append(bounds, math.Ldexp(1, k))
	}
	return bounds
}

var (
	_ confmap.Unmarshaler = (*ExponentialConfig)(nil)
	_ confmap.Validator   = (*HistogramRule)(nil)
	_ confmap.Validator   = (*ExplicitConfig)(nil)
	_ confmap.Validator   = MatchType("")
	_ confmap.Validator   = DensityName("")
	_ confmap.Validator   = OverflowPolicy("")
	_ confmap.Validator   = PresetName("")
	_ confmap.Validator   = Boundaries(nil)
	_ confmap.Validator   = MaxSize(0)
	_ confmap.Validator   = MaxScale(0)
)

// Unmarshal fills in what is not given: 0 is a scale like any other.
func (c *ExponentialConfig) Unmarshal(conf *confmap.Conf) error {
	*c = ExponentialConfig{MaxSize: defaultMaxSize, MaxScale: defaultMaxScale}
	return conf.Unmarshal(c)
}

// Validate checks what concerns more than one setting; each setting has a Validate of its own.
func (r *HistogramRule) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(r.MetricNames) == 0 {
		bad("metric_names: must name at least one metric")
	}
	for i, name := range r.MetricNames {
		switch {
		case name == "":
			bad("metric_names::%d: must not be empty", i)
		case r.MatchType == matchRegexp:
			if _, err := regexp.Compile(name); err != nil {
				bad("metric_names::%d: %w", i, err)
			}
		}
	}
	for key, value := range r.Attributes {
		switch value.(type) {
		case string, bool, int, int64, uint64, float64:
		default:
			bad("attributes::%s: %v (%T) must be a string, a number or a boolean", key, value, value)
		}
	}
	switch {
	case r.Explicit == nil && r.Exponential == nil:
		bad("needs explicit or exponential")
	case r.Explicit != nil && r.Exponential != nil:
		bad("takes explicit or exponential, not both")
	}
	return errors.Join(errs...)
}

// Validate checks that there is one source of boundaries.
func (c *ExplicitConfig) Validate() error {
	switch {
	case len(c.Boundaries) == 0 && c.Preset == "":
		return errors.New("needs boundaries or preset")
	case len(c.Boundaries) > 0 && c.Preset != "":
		return fmt.Errorf("takes boundaries or preset, not both; preset is %q", string(c.Preset))
	}
	return nil
}

// bounds are the boundaries in seconds.
func (c *ExplicitConfig) bounds() []float64 {
	if c.Preset != "" {
		return presets[c.Preset]
	}
	return c.Boundaries
}

// Validate checks the name.
func (m MatchType) Validate() error { return oneOf(m, matchStrict, matchRegexp) }

// Validate checks the name.
func (d DensityName) Validate() error { return oneOf(d, densityAuto, densityLinear, densityLog) }

// Validate checks the name.
func (o OverflowPolicy) Validate() error { return oneOf(o, overflowCut, overflowKeep) }

// Validate checks the name.
func (p PresetName) Validate() error { return oneOf(p, slices.Sorted(maps.Keys(presets))...) }

func oneOf[S ~string](value S, names ...S) error {
	if value == "" || slices.Contains(names, value) {
		return nil
	}
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = string(name)
	}
	return fmt.Errorf("%q is none of %s", string(value), strings.Join(list, ", "))
}

// Validate checks that they are durations in ascending order.
func (b Boundaries) Validate() error {
	for i, x := range b {
		switch {
		case math.IsNaN(x) || math.IsInf(x, 0):
			return fmt.Errorf("must be finite, got %v", x)
		case x < 0:
			return fmt.Errorf("must not be negative, got %v", x)
		case x > largestBoundary:
			return fmt.Errorf("must be at most %v s, got %v", float64(largestBoundary), x)
		case i > 0 && x <= b[i-1]:
			return fmt.Errorf("must be strictly increasing, got %v after %v", x, b[i-1])
		}
	}
	return nil
}

// Validate checks the range.
func (n MaxSize) Validate() error {
	if n < 2 || n > largestMaxSize {
		return fmt.Errorf("%d is not between 2 and %d", int(n), largestMaxSize)
	}
	return nil
}

// Validate checks the range.
func (s MaxScale) Validate() error {
	if s < rebucket.MinScale || s > rebucket.MaxScale {
		return fmt.Errorf("%d is not between %d and %d", int32(s), rebucket.MinScale, rebucket.MaxScale)
	}
	return nil
}
