// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"

	"github.com/otelcol-stream/otelcol-stream/streamprocessor/internal/metadata"
)

func loadConfig(t testing.TB, name string) *Config {
	t.Helper()
	cm, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	sub, err := cm.Sub(component.NewIDWithName(metadata.Type, name).String())
	require.NoError(t, err)
	cfg := NewFactory().CreateDefaultConfig()
	require.NoError(t, sub.Unmarshal(cfg))
	require.NoError(t, confmap.Validate(cfg))
	return cfg.(*Config)
}

func TestLoadConfig(t *testing.T) {
	assert.Equal(t, &Config{
		Mode:             "split",
		StreamSpanSuffix: " stream",
		CopyAttributes: []string{
			"gen_ai.provider.name", "gen_ai.system", "gen_ai.request.model", "gen_ai.response.model", "server.address", "server.port",
			"http.route", "http.request.method", "rpc.system", "rpc.service", "rpc.method",
		},
		MinSpread:   100 * time.Millisecond,
		ChunkEvents: ChunkEventsConfig{Action: "collapse", KeepStalls: 3},
		ChunkSpans:  ChunkSpansConfig{Wait: 30 * time.Second, MaxStreams: 100_000, MaxChunks: 100_000},
		Cadence: CadenceConfig{
			StallThreshold: time.Second, HeadWindow: 200 * time.Millisecond, FluidityDeadline: 100 * time.Millisecond, ReaderRate: 10,
		},
	}, loadConfig(t, ""), "the defaults")

	assert.Equal(t, &Config{
		Mode:             "nest",
		StreamSpanSuffix: " (stream)",
		CopyAttributes:   []string{"gen_ai.request.model"},
		MinSpread:        50 * time.Millisecond,
		Vocabulary: VocabularyConfig{
			Attributes: map[string]AttributeConfig{
				"my.ttft_ms": {Role: "time_to_first_chunk", Unit: "ms"},
				"my.stream":  {Role: "stream_flag"},
			},
			Events: map[string]EventConfig{
				"my.first": {Role: "first_chunk"},
				"my.chunk": {Role: "chunk"},
				"my.part.": {Role: "chunk", Prefix: true},
			},
			Spans: map[string]SpanConfig{
				"my chunk":   {Role: "chunk"},
				" http send": {Role: "chunk", Suffix: true, Where: map[string]string{"asgi.event.type": "http.response.body"}},
			},
			Trust:   []string{"gen_ai.latency.time_to_first_token"},
			Disable: []string{"mlflow.chunk.item."},
		},
		ChunkEvents: ChunkEventsConfig{Action: "keep", KeepStalls: 5},
		ChunkSpans:  ChunkSpansConfig{Enabled: true, Wait: 10 * time.Second, ParentWait: 2 * time.Second, MaxStreams: 1000, MaxChunks: 500},
		Cadence: CadenceConfig{
			StallThreshold: 2 * time.Second, HeadWindow: 100 * time.Millisecond, FluidityDeadline: 50 * time.Millisecond, ReaderRate: 5,
		},
	}, loadConfig(t, "all"))

	assert.Len(t, loadConfig(t, "every_role").Vocabulary.Attributes, 6)
}

// TestInvalidConfig: every error names the setting and the value that is wrong.
func TestInvalidConfig(t *testing.T) {
	for _, tt := range []struct {
		name string
		yaml map[string]any
		want []string
	}{
		{"mode", map[string]any{"mode": "slice"}, []string{"mode", `"slice"`, "split, annotate, nest"}},
		{"empty mode", map[string]any{"mode": ""}, []string{"mode", `""`}},
		{"empty copied key", map[string]any{"copy_attributes": []any{"a", ""}}, []string{"copy_attributes", "empty"}},
		{"min_spread", map[string]any{"min_spread": "-1ms"}, []string{"min_spread", "-1ms"}},
		{"action", map[string]any{"chunk_events": map[string]any{"action": "drop"}}, []string{"chunk_events::action", `"drop"`}},
		{"keep_stalls", map[string]any{"chunk_events": map[string]any{"keep_stalls": -2}}, []string{"chunk_events::keep_stalls", "-2"}},
		{"wait", map[string]any{"chunk_spans": map[string]any{"wait": "0s"}}, []string{"chunk_spans::wait", "0s"}},
		{"parent_wait", map[string]any{"chunk_spans": map[string]any{"parent_wait": "-5s"}}, []string{"chunk_spans::parent_wait", "-5s"}},
		{"max_streams", map[string]any{"chunk_spans": map[string]any{"max_streams": 0}}, []string{"chunk_spans::max_streams", "0"}},
		{"max_chunks", map[string]any{"chunk_spans": map[string]any{"max_chunks": 1}}, []string{"chunk_spans::max_chunks", "1"}},
		{"stall_threshold", map[string]any{"cadence": map[string]any{"stall_threshold": "0s"}}, []string{"cadence::stall_threshold", "0s"}},
		{"head_window", map[string]any{"cadence": map[string]any{"head_window": "-1s"}}, []string{"cadence::head_window", "-1s"}},
		{"fluidity_deadline", map[string]any{"cadence": map[string]any{"fluidity_deadline": "0s"}}, []string{"cadence::fluidity_deadline", "0s"}},
		{"reader_rate", map[string]any{"cadence": map[string]any{"reader_rate": 0}}, []string{"cadence::reader_rate", "0"}},
		{"infinite reader_rate", map[string]any{"cadence": map[string]any{"reader_rate": math.Inf(1)}}, []string{"cadence::reader_rate", "+Inf"}},
		{"NaN reader_rate", map[string]any{"cadence": map[string]any{"reader_rate": math.NaN()}}, []string{"cadence::reader_rate", "NaN"}},
		{"attribute role", vocabulary("attributes", map[string]any{"my.key": map[string]any{"role": "chunk"}}), []string{"vocabulary::attributes::my.key::role", `"chunk"`}},
		{"no attribute role", vocabulary("attributes", map[string]any{"my.key": map[string]any{}}), []string{"vocabulary::attributes::my.key::role", `""`}},
		{"unit", vocabulary("attributes", map[string]any{"my.key": map[string]any{"role": "time_to_first_chunk", "unit": "min"}}), []string{"vocabulary::attributes::my.key::unit", `"min"`}},
		{"unit of a flag", vocabulary("attributes", map[string]any{"my.key": map[string]any{"role": "stream_flag", "unit": "s"}}), []string{"vocabulary::attributes::my.key::unit", `"s"`}},
		{"empty attribute key", vocabulary("attributes", map[string]any{"": map[string]any{"role": "stream_flag"}}), []string{"vocabulary::attributes", "empty"}},
		{"own attribute", vocabulary("attributes", map[string]any{"stream.phase": map[string]any{"role": "stream_flag"}}), []string{"vocabulary::attributes", `"stream.phase"`}},
		{"event role", vocabulary("events", map[string]any{"my.event": map[string]any{"role": "stream_flag"}}), []string{"vocabulary::events::my.event::role", `"stream_flag"`}},
		{"empty event name", vocabulary("events", map[string]any{"": map[string]any{"role": "chunk"}}), []string{"vocabulary::events", "empty"}},
		{"span role", vocabulary("spans", map[string]any{"my span": map[string]any{"role": "end"}}), []string{"vocabulary::spans::my span::role", `"end"`}},
		{"empty span name", vocabulary("spans", map[string]any{"": map[string]any{"role": "chunk"}}), []string{"vocabulary::spans", "empty"}},
		{"trust", vocabulary("trust", []any{"no.such.key"}), []string{"vocabulary::trust", `"no.such.key"`}},
		{"disable", vocabulary("disable", []any{"no.such.key"}), []string{"vocabulary::disable", `"no.such.key"`}},
		{"disable the own attribute", vocabulary("disable", []any{"stream.phase"}), []string{"vocabulary::disable", `"stream.phase"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := NewFactory().CreateDefaultConfig()
			require.NoError(t, confmap.NewFromStringMap(tt.yaml).Unmarshal(cfg))
			err := confmap.Validate(cfg)
			require.Error(t, err)
			for _, w := range tt.want {
				require.ErrorContains(t, err, w)
			}
			assert.NotContains(t, err.Error(), "\n", "one line")
		})
	}
}

func vocabulary(key string, value any) map[string]any {
	return map[string]any{"vocabulary": map[string]any{key: value}}
}

// TestUnknownSettings: a setting that does not exist, or a value of the wrong type, does not pass in silence.
func TestUnknownSettings(t *testing.T) {
	for key, yaml := range map[string]map[string]any{
		"modus":      {"modus": "split"},
		"min_spread": {"min_spread": "soon"},
		"prefix":     vocabulary("attributes", map[string]any{"k": map[string]any{"role": "stream_flag", "prefix": true}}),
	} {
		require.ErrorContains(t, confmap.NewFromStringMap(yaml).Unmarshal(NewFactory().CreateDefaultConfig()), key)
	}
}
