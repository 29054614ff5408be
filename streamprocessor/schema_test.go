// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"encoding/json"
	"fmt"
	"maps"
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
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.yaml.in/yaml/v3"
)

const schemaFile = "config.schema.yaml"

// schemaNode is the part of JSON Schema that the Collector's components use. A bare name in Ref is one of the Defs.
type schemaNode struct {
	Ref                  string                 `yaml:"$ref"`
	Defs                 map[string]*schemaNode `yaml:"$defs"`
	Type                 string                 `yaml:"type"`
	Description          string                 `yaml:"description"`
	Default              any                    `yaml:"default"`
	Properties           map[string]*schemaNode `yaml:"properties"`
	Items                *schemaNode            `yaml:"items"`
	AdditionalProperties *schemaNode            `yaml:"additionalProperties"`
}

func readSchema(t *testing.T) *schemaNode {
	t.Helper()
	raw, err := os.ReadFile(schemaFile)
	require.NoError(t, err)
	var root schemaNode
	require.NoError(t, yaml.Unmarshal(raw, &root))
	return &root
}

// TestSchemaMatchesConfig walks the struct and the schema side by side: the same keys, types and defaults on both sides.
func TestSchemaMatchesConfig(t *testing.T) {
	root := readSchema(t)
	used := map[string]bool{}
	var walk func(path string, s *schemaNode, v reflect.Value)
	walk = func(path string, s *schemaNode, v reflect.Value) {
		if !assert.NotNil(t, s, "%s is not in the schema", path) {
			return
		}
		if s.Ref != "" {
			used[s.Ref] = true
			require.Contains(t, root.Defs, s.Ref, path)
			s = root.Defs[s.Ref]
		}
		for v.Kind() == reflect.Pointer {
			v = reflect.New(v.Type().Elem()).Elem()
		}
		if v.Type() == reflect.TypeFor[time.Duration]() {
			assert.Equal(t, "string", s.Type, path)
			assertDefault(t, path, s.Default, v.Interface().(time.Duration).String())
			return
		}
		switch v.Kind() {
		case reflect.Struct:
			assert.Equal(t, "object", s.Type, path)
			keys := map[string]bool{}
			for i := range v.NumField() {
				f := v.Type().Field(i)
				key, _, _ := strings.Cut(f.Tag.Get("mapstructure"), ",")
				if key == "" || f.Name == "_" {
					continue
				}
				keys[key] = true
				walk(strings.TrimPrefix(path+"::"+key, "::"), s.Properties[key], v.Field(i))
			}
			assert.Equal(t, slices.Sorted(maps.Keys(keys)), slices.Sorted(maps.Keys(s.Properties)), "keys of %q", path)
		case reflect.Map:
			assert.Equal(t, "object", s.Type, path)
			walk(path+"::*", s.AdditionalProperties, reflect.New(v.Type().Elem()).Elem())
		case reflect.Slice:
			assert.Equal(t, "array", s.Type, path)
			assertDefault(t, path, s.Default, v.Interface())
			walk(path+"::*", s.Items, reflect.New(v.Type().Elem()).Elem())
		case reflect.String:
			assert.Equal(t, "string", s.Type, path)
			assertDefault(t, path, s.Default, v.String())
		case reflect.Bool:
			assert.Equal(t, "boolean", s.Type, path)
			assertDefault(t, path, s.Default, v.Bool())
		case reflect.Int, reflect.Int32, reflect.Int64:
			assert.Equal(t, "integer", s.Type, path)
			assertDefault(t, path, s.Default, v.Int())
		case reflect.Float64:
			assert.Equal(t, "number", s.Type, path)
			assertDefault(t, path, s.Default, v.Float())
		case reflect.Interface:
			assert.Empty(t, s.Type, "%s may be of several types", path)
		default:
			assert.Fail(t, "a kind that the walk does not know", "%s: %s", path, v.Kind())
		}
	}
	walk("", root, reflect.ValueOf(createDefaultConfig()).Elem())
	assert.Equal(t, slices.Sorted(maps.Keys(root.Defs)), slices.Sorted(maps.Keys(used)), "every definition is used")
}

// assertDefault compares the default of the schema, if it states one, with that of the struct; a default that is not the zero value must
// be stated.
func assertDefault(t *testing.T, path string, stated, actual any) {
	t.Helper()
	if stated == nil {
		assert.True(t, reflect.ValueOf(actual).IsZero() || actual == "0s" || strings.Contains(path, "*") || reflect.ValueOf(actual).Kind() == reflect.Slice && reflect.ValueOf(actual).Len() == 0,
			"%s: the schema does not state the default %v", path, actual)
		return
	}
	assert.Equal(t, fmt.Sprint(actual), fmt.Sprint(stated), "default of %s", path)
}

// compileSchema turns the schema into what a validator reads: JSON, and references to definitions in full.
func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	raw, err := os.ReadFile(schemaFile)
	require.NoError(t, err)
	var doc any
	require.NoError(t, yaml.Unmarshal(raw, &doc))
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("schema.json", viaJSON(t, fullReferences(doc))))
	schema, err := compiler.Compile("schema.json")
	require.NoError(t, err)
	return schema
}

func fullReferences(node any) any {
	switch node := node.(type) {
	case map[string]any:
		for key, v := range node {
			if name, ok := v.(string); ok && key == "$ref" {
				node[key] = "#/$defs/" + name
				continue
			}
			node[key] = fullReferences(v)
		}
	case []any:
		for i, v := range node {
			node[i] = fullReferences(v)
		}
	}
	return node
}

func viaJSON(t *testing.T, v any) any {
	t.Helper()
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	out, err := jsonschema.UnmarshalJSON(strings.NewReader(string(raw)))
	require.NoError(t, err)
	return out
}

func TestSchemaAcceptsTheTestConfiguration(t *testing.T) {
	schema := compileSchema(t)
	cm, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	for name, cfg := range cm.ToStringMap() {
		if cfg == nil {
			cfg = map[string]any{}
		}
		require.NoError(t, schema.Validate(viaJSON(t, cfg)), name)
	}
	for _, bad := range []map[string]any{
		{"mode": "slice"},
		{"min_spread": 5},
		{"copy_attributes": []any{""}},
		{"chunk_events": map[string]any{"keep_stalls": -1}},
		{"cadence": map[string]any{"reader_rate": 0}},
		vocabulary("events", map[string]any{"e": map[string]any{"role": "stream_flag"}}),
		vocabulary("attributes", map[string]any{"a": map[string]any{}}),
	} {
		require.Error(t, schema.Validate(viaJSON(t, bad)), "%v", bad)
	}
}
