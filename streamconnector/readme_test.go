// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// metricTable is the table of metrics of the README.
func metricTable() string {
	cfg := createDefaultConfig().(*Config)
	cfg.GenAIDuration = true
	fs, _ := families(cfg)
	var b strings.Builder
	b.WriteString("| metric | unit | kind | boundaries | meaning |\n| --- | --- | --- | --- | --- |\n")
	for _, f := range fs {
		for i, in := range f.instruments {
			kind, bounds := "monotonic sum", ""
			if in.ladder != nil {
				kind, bounds = "histogram", ladderText(in.ladder)
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.name(i), in.unit, kind, bounds, in.description)
		}
	}
	return b.String()
}

// ladderText is a list of bounds, or for what is at heart a power series its first and last.
func ladderText(bounds []float64) string {
	prefix, series := "", bounds
	if bounds[0] == 0 {
		prefix, series = "0, ", bounds[1:]
	}
	for i := 1; i < len(series); i++ {
		if r := series[i] / series[i-1]; r < 1.999999 || r > 2.000001 {
			return strings.Trim(strings.ReplaceAll(fmt.Sprint(bounds), " ", ", "), "[]")
		}
	}
	return fmt.Sprintf("%s%v, ×2 … %v", prefix, series[0], series[len(series)-1])
}

func TestReadmeListsEveryMetric(t *testing.T) {
	const begin, end = "<!-- metrics generated from instruments.go -->\n", "<!-- end metrics -->"
	raw, err := os.ReadFile("README.md")
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(raw), begin)
	require.True(t, found)
	table, after, found := strings.Cut(rest, end)
	require.True(t, found)
	if *update {
		require.NoError(t, os.WriteFile("README.md", []byte(before+begin+metricTable()+end+after), 0o600))
		return
	}
	assert.Equal(t, metricTable(), table, "run go test -update")
}

// Every setting is in the README with its default.
func TestReadmeListsEverySetting(t *testing.T) {
	raw, err := os.ReadFile("README.md")
	require.NoError(t, err)
	doc, _ := readSchema(t)
	var walk func(path string, node map[string]any)
	walk = func(path string, node map[string]any) {
		if ref, ok := node["$ref"].(string); ok {
			node = doc["$defs"].(map[string]any)[ref].(map[string]any)
		}
		properties, ok := node["properties"].(map[string]any)
		if !ok {
			line := "| `" + strings.TrimPrefix(path, "::") + "` | "
			if d, ok := node["default"]; ok && node["format"] != "duration" {
				line += fmt.Sprintf("`%v` |", d)
			}
			assert.Contains(t, string(raw), line)
			return
		}
		for key, child := range properties {
			walk(path+"::"+key, child.(map[string]any))
		}
	}
	walk("", doc)
}
