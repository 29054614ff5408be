// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/otelcol-stream/otelcol-stream/internal/cadence"
	"github.com/otelcol-stream/otelcol-stream/internal/dialect"
	"github.com/otelcol-stream/otelcol-stream/internal/streamspan"
)

// Config is the configuration of the processor. Traces pipelines use all of it but Histograms, metrics pipelines only Histograms.
type Config struct {
	// Mode is what becomes of a streaming span: split, annotate or nest. Default: split.
	Mode streamspan.Mode `mapstructure:"mode"`
	// StreamSpanSuffix is appended to the name of a span to name its stream span. Default: " stream".
	StreamSpanSuffix string `mapstructure:"stream_span_suffix"`
	// CopyAttributes lists the attributes of a span that its stream span gets too. Default: provider, models, server address and port,
	// route, method, RPC system, service and method.
	CopyAttributes []string `mapstructure:"copy_attributes"`
	// MinSpread is the time over which the body writes of a server must spread to count as a stream. Default: 100ms.
	MinSpread time.Duration `mapstructure:"min_spread"`
	// Vocabulary adds rows to the table of what instrumentations write and switches built-in ones off.
	Vocabulary VocabularyConfig `mapstructure:"vocabulary"`
	// ChunkEvents says what becomes of per-chunk span events.
	ChunkEvents ChunkEventsConfig `mapstructure:"chunk_events"`
	// ChunkSpans says what becomes of per-chunk child spans.
	ChunkSpans ChunkSpansConfig `mapstructure:"chunk_spans"`
	// Cadence holds the thresholds of the cadence summary.
	Cadence CadenceConfig `mapstructure:"cadence"`
	// Histograms lists the rules by which a metrics pipeline re-buckets histograms; the first that matches a metric wins.
	Histograms []HistogramRule `mapstructure:"histograms"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// VocabularyConfig is the user's part of the table.
type VocabularyConfig struct {
	// Attributes maps attribute keys to what they mean.
	Attributes map[string]AttributeConfig `mapstructure:"attributes"`
	// Events maps event names to what they mean.
	Events map[string]EventConfig `mapstructure:"events"`
	// Spans maps span names to what they mean.
	Spans map[string]SpanConfig `mapstructure:"spans"`
	// Trust lists keys whose instants count although servers write them for plain calls too.
	Trust []string `mapstructure:"trust"`
	// Disable lists keys of the built-in table to leave out.
	Disable []string `mapstructure:"disable"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// AttributeConfig is a row for an attribute key.
type AttributeConfig struct {
	// Role is one of stream_flag, time_to_first_chunk, first_chunk_time, output_tokens, finish_reason, chunk_count.
	Role dialect.Role `mapstructure:"role"`
	// Unit of a time_to_first_chunk: s, ms, us or ns. Default: the largest under which the value fits into the span.
	Unit dialect.Unit `mapstructure:"unit"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// EventConfig is a row for an event name.
type EventConfig struct {
	// Role is one of first_chunk, chunk, end.
	Role dialect.Role `mapstructure:"role"`
	// Prefix makes the row apply to every event whose name begins with the key. Default: false.
	Prefix bool `mapstructure:"prefix"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// SpanConfig is a row for a span name.
type SpanConfig struct {
	// Role is chunk.
	Role dialect.Role `mapstructure:"role"`
	// Suffix makes the row apply to every span whose name ends with the key. Default: false.
	Suffix bool `mapstructure:"suffix"`
	// Where lists attributes that the span must have, with their values.
	Where map[string]string `mapstructure:"where"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// ChunkEventsConfig says what becomes of per-chunk span events.
type ChunkEventsConfig struct {
	// Action is collapse or keep. Default: collapse.
	Action string `mapstructure:"action"`
	// KeepStalls is the number of longest stalls whose two events survive the collapse. Default: 3.
	KeepStalls int `mapstructure:"keep_stalls"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// ChunkSpansConfig says what becomes of per-chunk child spans.
type ChunkSpansConfig struct {
	// Enabled folds chunk spans into their parent's stream. Default: false.
	Enabled bool `mapstructure:"enabled"`
	// Wait is the time after the last chunk span after which a stream whose parent has not come goes out on its own. Default: 30s.
	Wait time.Duration `mapstructure:"wait"`
	// ParentWait is the time for which a parent is held back for chunk spans that come after it. Default: 0s.
	ParentWait time.Duration `mapstructure:"parent_wait"`
	// MaxStreams bounds the number of open streams. Default: 100000.
	MaxStreams int `mapstructure:"max_streams"`
	// MaxChunks bounds the number of chunk instants kept of one stream. Default: 100000.
	MaxChunks int `mapstructure:"max_chunks"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// CadenceConfig holds the thresholds of the cadence summary.
type CadenceConfig struct {
	// StallThreshold is the shortest gap that counts as a stall. Default: 1s.
	StallThreshold time.Duration `mapstructure:"stall_threshold"`
	// HeadWindow is the time after the first chunk in which a burst is looked for. Default: 200ms.
	HeadWindow time.Duration `mapstructure:"head_window"`
	// FluidityDeadline is the time per token after which a deadline counts as missed. Default: 100ms.
	FluidityDeadline time.Duration `mapstructure:"fluidity_deadline"`
	// ReaderRate is the reading speed behind stream.reader.wait in tokens per second. Default: 10.
	ReaderRate float64 `mapstructure:"reader_rate"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// Values of chunk_events::action.
const (
	actionCollapse = "collapse"
	actionKeep     = "keep"
)

var (
	_ component.Config  = (*Config)(nil)
	_ confmap.Validator = (*Config)(nil)
)

// Validate returns an error for every setting that cannot be worked with; each names the setting and its value.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if modes := []streamspan.Mode{streamspan.ModeSplit, streamspan.ModeAnnotate, streamspan.ModeNest}; !slices.Contains(modes, c.Mode) {
		bad("mode: %q is none of split, annotate, nest", c.Mode)
	}
	if slices.Contains(c.CopyAttributes, "") {
		bad("copy_attributes: a key must not be empty")
	}
	if c.MinSpread < 0 {
		bad("min_spread: %v must not be negative", c.MinSpread)
	}
	if err := c.Vocabulary.rows().Validate(); err != nil {
		errs = append(errs, err)
	}
	if a := c.ChunkEvents.Action; a != actionCollapse && a != actionKeep {
		bad("chunk_events::action: %q is none of collapse, keep", a)
	}
	if n := c.ChunkEvents.KeepStalls; n < 0 {
		bad("chunk_events::keep_stalls: %d must not be negative", n)
	}
	if d := c.ChunkSpans.Wait; d <= 0 {
		bad("chunk_spans::wait: %v must be positive", d)
	}
	if d := c.ChunkSpans.ParentWait; d < 0 {
		bad("chunk_spans::parent_wait: %v must not be negative", d)
	}
	if n := c.ChunkSpans.MaxStreams; n <= 0 {
		bad("chunk_spans::max_streams: %d must be positive", n)
	}
	if n := c.ChunkSpans.MaxChunks; n < 2 {
		bad("chunk_spans::max_chunks: %d must be at least 2", n)
	}
	for _, d := range []struct {
		key   string
		value time.Duration
	}{
		{"stall_threshold", c.Cadence.StallThreshold}, {"head_window", c.Cadence.HeadWindow}, {"fluidity_deadline", c.Cadence.FluidityDeadline},
	} {
		if d.value <= 0 {
			bad("cadence::%s: %v must be positive", d.key, d.value)
		}
	}
	if r := c.Cadence.ReaderRate; !(r > 0) || math.IsInf(r, 0) {
		bad("cadence::reader_rate: %v must be positive and finite", r)
	}
	return errors.Join(errs...)
}

func (v VocabularyConfig) rows() dialect.Vocabulary {
	rows := dialect.Vocabulary{
		Attributes: make(map[string]dialect.AttributeRow, len(v.Attributes)),
		Events:     make(map[string]dialect.EventRow, len(v.Events)),
		Spans:      make(map[string]dialect.SpanRow, len(v.Spans)),
		Trust:      v.Trust,
		Disable:    v.Disable,
	}
	for key, a := range v.Attributes {
		rows.Attributes[key] = dialect.AttributeRow{Role: a.Role, Unit: a.Unit}
	}
	for key, e := range v.Events {
		rows.Events[key] = dialect.EventRow{Role: e.Role, Prefix: e.Prefix}
	}
	for key, s := range v.Spans {
		rows.Spans[key] = dialect.SpanRow{Role: s.Role, Suffix: s.Suffix, Where: maps.Clone(s.Where)}
	}
	return rows
}

func (c CadenceConfig) settings() cadence.Settings {
	return cadence.Settings{
		StallThreshold: c.StallThreshold, HeadWindow: c.HeadWindow, FluidityDeadline: c.FluidityDeadline, ReaderRate: c.ReaderRate,
	}
}

func (c *Config) splitOptions() streamspan.Options {
	return streamspan.Options{
		Mode:            c.Mode,
		Suffix:          c.StreamSpanSuffix,
		CopyAttributes:  c.CopyAttributes,
		KeepChunkEvents: c.ChunkEvents.Action == actionKeep,
		KeepStalls:      c.ChunkEvents.KeepStalls,
		StallThreshold:  c.Cadence.StallThreshold,
	}
}
