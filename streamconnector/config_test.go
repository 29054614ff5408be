// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.yaml.in/yaml/v3"

	"github.com/otelcol-stream/otelcol-stream/streamconnector/internal/metadata"
)

func TestConfigStruct(t *testing.T) {
	require.NoError(t, componenttest.CheckConfigStruct(createDefaultConfig()))
}

func TestLoadConfig(t *testing.T) {
	none := "none"
	defaults := func(change func(*Config)) *Config {
		cfg := &Config{
			Namespace:                   "stream",
			GenAIPrefix:                 "gen_ai.client.operation",
			Histogram:                   HistogramConfig{Type: "explicit", MaxSize: 160},
			ResourceAttributes:          []string{"all"},
			AggregationTemporality:      "cumulative",
			MetricsFlushInterval:        15 * time.Second,
			MetricsExpiration:           5 * time.Minute,
			AggregationCardinalityLimit: 2000,
			Exemplars:                   ExemplarsConfig{Enabled: true, MaxPerDataPoint: 5},
		}
		change(cfg)
		return cfg
	}
	cm, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	for name, want := range map[string]*Config{
		"":                        defaults(func(*Config) {}),
		"all_resource_attributes": defaults(func(*Config) {}),
		"all": {
			Namespace:     "llm.stream",
			GenAIPrefix:   "gen_ai.client.call",
			GenAIDuration: true,
			Histogram: HistogramConfig{Type: "explicit", MaxSize: 160, Boundaries: map[string][]float64{
				"llm.stream.chunk.gap": {0.01, 0.1, 1, 10}, "gen_ai.client.call.duration": {1, 10, 100},
			}},
			Dimensions:                  []DimensionConfig{{Name: "http.route", Default: &none}, {Name: "server.address"}},
			ResourceAttributes:          []string{"service.name", "k8s.pod.name"},
			IncludeNested:               true,
			AggregationTemporality:      "delta",
			MetricsFlushInterval:        time.Minute,
			AggregationCardinalityLimit: 100,
			Exemplars:                   ExemplarsConfig{Enabled: true, MaxPerDataPoint: 1},
		},
		"exponential": defaults(func(c *Config) {
			c.GenAIPrefix = ""
			c.Histogram = HistogramConfig{Type: "exponential", MaxSize: 80}
			c.ResourceAttributes = []string{}
			c.Exemplars = ExemplarsConfig{}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			sub, err := cm.Sub(component.NewIDWithName(metadata.Type, name).String())
			require.NoError(t, err)
			cfg := NewFactory().CreateDefaultConfig()
			require.NoError(t, sub.Unmarshal(cfg))
			require.NoError(t, confmap.Validate(cfg))
			assert.Equal(t, want, cfg)
		})
	}
}

// An error names the key and the value.
func TestInvalidConfig(t *testing.T) {
	for want, change := range map[string]func(*Config){
		`namespace: "" is not the beginning`:                          func(c *Config) { c.Namespace = "" },
		`namespace: "1st" is not`:                                     func(c *Config) { c.Namespace = "1st" },
		`gen_ai_prefix: "gen ai" is not`:                              func(c *Config) { c.GenAIPrefix = "gen ai" },
		`gen_ai_prefix: "stream" is the namespace too`:                func(c *Config) { c.GenAIPrefix = "stream" },
		`gen_ai_duration: true has no effect`:                         func(c *Config) { c.GenAIPrefix, c.GenAIDuration = "", true },
		`aggregation_temporality: "AGGREGATION_TEMPORALITY_DELTA" is`: func(c *Config) { c.AggregationTemporality = "AGGREGATION_TEMPORALITY_DELTA" },
		`metrics_flush_interval: 0s is not positive`:                  func(c *Config) { c.MetricsFlushInterval = 0 },
		`metrics_expiration: -1s is negative`:                         func(c *Config) { c.MetricsExpiration = -time.Second },
		`aggregation_cardinality_limit: -1 is negative`:               func(c *Config) { c.AggregationCardinalityLimit = -1 },
		`exemplars::max_per_data_point: 0 is not positive`:            func(c *Config) { c.Exemplars.MaxPerDataPoint = 0 },
		`dimensions[1]::name is empty`:                                func(c *Config) { c.Dimensions = []DimensionConfig{{Name: "a"}, {}} },
		`dimensions[0]::name: "stream.outcome" is an attribute`:       func(c *Config) { c.Dimensions = []DimensionConfig{{Name: "stream.outcome"}} },
		`dimensions[1]::name: "a" is there twice`:                     func(c *Config) { c.Dimensions = []DimensionConfig{{Name: "a"}, {Name: "a"}} },
		`resource_attributes[1]: "all" must stand alone`:              func(c *Config) { c.ResourceAttributes = []string{"a", "all"} },
		`resource_attributes[1]: "a" is empty or there twice`:         func(c *Config) { c.ResourceAttributes = []string{"a", "a"} },
		`histogram::type: "linear" is neither`:                        func(c *Config) { c.Histogram.Type = "linear" },
		`histogram::max_size: 1 is less than 2`:                       func(c *Config) { c.Histogram.Type, c.Histogram.MaxSize = "exponential", 1 },
		`histogram::max_size: 0 is less than 2`:                       func(c *Config) { c.Histogram.MaxSize = 0 },
		`exemplars::max_per_data_point: -1 is not positive`:           func(c *Config) { c.Exemplars = ExemplarsConfig{MaxPerDataPoint: -1} },
		`histogram::boundaries has no effect`: func(c *Config) {
			c.Histogram.Type, c.Histogram.Boundaries = "exponential", map[string][]float64{"stream.duration": {1}}
		},
		`histogram::boundaries: no histogram has the name "stream.count"; there are stream.time_to_first_chunk, `: boundaries("stream.count", 1),
		`histogram::boundaries: no histogram has the name "gen_ai.client.operation.duration"`:                     boundaries("gen_ai.client.operation.duration", 1),
		`histogram::boundaries::stream.duration: the list is empty`:                                               boundaries("stream.duration"),
		`histogram::boundaries::stream.duration: -1 is not a finite`:                                              boundaries("stream.duration", -1),
		`histogram::boundaries::stream.duration: NaN is not a finite`:                                             boundaries("stream.duration", math.NaN()),
		`histogram::boundaries::stream.duration: +Inf is not a finite`:                                            boundaries("stream.duration", 1, math.Inf(1)),
		`histogram::boundaries::stream.duration: 2 does not ascend after 2`:                                       boundaries("stream.duration", 1, 2, 2),
	} {
		cfg := createDefaultConfig().(*Config)
		change(cfg)
		require.ErrorContains(t, confmap.Validate(cfg), want)
	}

	several := createDefaultConfig().(*Config)
	several.Namespace, several.MetricsFlushInterval = "", -1
	err := several.Validate()
	require.ErrorContains(t, err, "namespace")
	require.ErrorContains(t, err, "metrics_flush_interval", "all errors at once")
}

func boundaries(name string, bounds ...float64) func(*Config) {
	return func(c *Config) { c.Histogram.Boundaries = map[string][]float64{name: bounds} }
}

func TestConfiguredBoundariesAreUsed(t *testing.T) {
	h := newHarness(t, func(c *Config) {
		c.Histogram.Boundaries = map[string][]float64{
			"stream.chunk.gap": {0.1, 2}, "gen_ai.client.operation.time_per_output_chunk": {0.05, 5}, "stream.chunk.gap.max": {2.5, 3, 4},
		}
	})
	h.send(t, raw(stalling()))
	md := h.export(t)
	assert.Equal(t, []uint64{9, 1, 1}, only(t, md, "stream.chunk.gap").counts)
	assert.Equal(t, []uint64{0, 11, 0}, only(t, md, "gen_ai.client.operation.time_per_output_chunk").counts)
	assert.Equal(t, []uint64{0, 1, 0, 0}, only(t, md, "stream.chunk.gap.max").counts)
	assert.Equal(t, durationLadder, only(t, md, "stream.duration").bounds, "the others keep theirs")
}

// readSchema returns the schema as YAML, and compiled.
func readSchema(t *testing.T) (map[string]any, *jsonschema.Schema) {
	t.Helper()
	text, err := os.ReadFile("config.schema.yaml")
	require.NoError(t, err)
	var doc map[string]any
	require.NoError(t, yaml.Unmarshal(text, &doc))
	// Within the Collector a bare name refers to a definition of the same file.
	raw, err := json.Marshal(doc)
	require.NoError(t, err)
	for name := range doc["$defs"].(map[string]any) {
		raw = []byte(strings.ReplaceAll(string(raw), `"$ref":"`+name+`"`, `"$ref":"#/$defs/`+name+`"`))
	}
	resource, err := jsonschema.UnmarshalJSON(strings.NewReader(string(raw)))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("schema.json", resource))
	compiled, err := c.Compile("schema.json")
	require.NoError(t, err)
	return doc, compiled
}

func TestSchema(t *testing.T) {
	doc, schema := readSchema(t)
	defs := doc["$defs"].(map[string]any)

	// The same keys and defaults as in the struct, and a description of each.
	var compare func(path string, node map[string]any, v reflect.Value)
	compare = func(path string, node map[string]any, v reflect.Value) {
		if ref, ok := node["$ref"].(string); ok {
			node = defs[ref].(map[string]any)
		}
		if v.Kind() != reflect.Struct {
			assert.NotEmpty(t, node["description"], path)
			switch want := v.Interface().(type) {
			case time.Duration:
				assert.Equal(t, want.String(), node["default"], path)
			case string, bool, int:
				assert.EqualValues(t, want, node["default"], path)
			}
			return
		}
		properties := node["properties"].(map[string]any)
		var keys []string
		for i := range v.NumField() {
			key := v.Type().Field(i).Tag.Get("mapstructure")
			keys = append(keys, key)
			if assert.Contains(t, properties, key) {
				compare(path+"::"+key, properties[key].(map[string]any), v.Field(i))
			}
		}
		assert.ElementsMatch(t, keys, slices.Collect(maps.Keys(properties)), path)
	}
	compare("", doc, reflect.ValueOf(*createDefaultConfig().(*Config)))

	cm, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	validate := func(cfg any) error {
		raw, err := json.Marshal(cfg)
		require.NoError(t, err)
		instance, err := jsonschema.UnmarshalJSON(strings.NewReader(string(raw)))
		require.NoError(t, err)
		return schema.Validate(instance)
	}
	for name, cfg := range cm.ToStringMap() {
		if cfg != nil {
			require.NoError(t, validate(cfg), name)
		}
	}
	for _, bad := range []map[string]any{
		{"name_space": "a"},
		{"namespace": ""},
		{"metrics_flush_interval": 15},
		{"aggregation_temporality": "sometimes"},
		{"resource_attributes": "some"},
		{"histogram": map[string]any{"type": "linear"}},
		{"histogram": map[string]any{"boundaries": map[string]any{"stream.duration": []any{}}}},
		{"dimensions": []any{map[string]any{"default": "a"}}},
		{"exemplars": map[string]any{"max_per_data_point": -1}},
	} {
		require.Error(t, validate(bad), "%v", bad)
	}
}
