// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/otelcol-stream/otelcol-stream/test/collector"
)

// validEnv gives values to the variables that examples read without a default, such as a pod's address.
var validEnv = map[string]string{
	"K8S_NODE_NAME": "node", "K8S_POD_NAME": "pod", "K8S_POD_IP": "127.0.0.1", "MY_POD_IP": "127.0.0.1", "POD_IP": "127.0.0.1", "POD_NAME": "pod",
	"GOMEMLIMIT": "400MiB", "BACKEND_ENDPOINT": "127.0.0.1:4317", "OTLP_BACKEND": "127.0.0.1:4317",
}

// configsIn returns every collector configuration of a YAML file: the file itself, or what Kubernetes objects embed
// (a ConfigMap's data, an OpenTelemetryCollector's spec.config).
func configsIn(t *testing.T, path string) map[string]string {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	found := map[string]string{}
	decoder := yaml.NewDecoder(strings.NewReader(string(raw)))
	for {
		var document any
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err, path)
		doc, _ := document.(map[string]any) // anything else has no configuration in it
		switch {
		case isConfig(doc):
			found["whole file"] = string(raw)
		case doc["kind"] == "ConfigMap":
			data, _ := doc["data"].(map[string]any)
			for name, text := range data {
				var inner map[string]any
				if s, ok := text.(string); ok && yaml.Unmarshal([]byte(s), &inner) == nil && isConfig(inner) {
					found["ConfigMap "+name] = s
				}
			}
		case doc["kind"] == "OpenTelemetryCollector":
			spec, _ := doc["spec"].(map[string]any)
			switch config := spec["config"].(type) {
			case string:
				found["OpenTelemetryCollector"] = config
			case map[string]any:
				text, err := yaml.Marshal(config)
				require.NoError(t, err)
				found["OpenTelemetryCollector"] = string(text)
			}
		}
	}
}

func isConfig(doc map[string]any) bool {
	service, ok := doc["service"].(map[string]any)
	return ok && service["pipelines"] != nil
}

func TestValidateEveryConfiguration(t *testing.T) {
	n := 0
	// `make kustomizations` lays manifests here, with the configurations as they would reach a cluster.
	kustomized := filepath.Join("dist", "kustomized")
	for _, dir := range []string{"examples", "distribution", kustomized} {
		root := filepath.Join(collector.Root(), dir)
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) && path == root && dir == kustomized {
				return nil
			}
			if err != nil {
				return err
			}
			if ext := filepath.Ext(path); entry.IsDir() || ext != ".yaml" && ext != ".yml" {
				return nil
			}
			name, err := filepath.Rel(collector.Root(), path)
			require.NoError(t, err)
			for part, config := range configsIn(t, path) {
				n++
				t.Run(name+" "+part, func(t *testing.T) {
					file := filepath.Join(t.TempDir(), "config.yaml")
					require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
					out, err := collector.Command(t.Context(), validEnv, "validate", "--config="+file)
					require.NoError(t, err, out)
				})
			}
			return nil
		})
		require.NoError(t, err)
	}
	require.NotZero(t, n, "no configuration found")
}

// A wrong setting stops the start, and one line says which it is.
func TestWrongSettingStopsTheStart(t *testing.T) {
	for _, tc := range []struct {
		name, setting string
		line          []string // what one line has to say
	}{
		{"mode", "mode: halve", []string{"processors::stream: mode", "halve"}},
		{"duration below zero", "cadence: {stall_threshold: -1s}", []string{"processors::stream: cadence::stall_threshold", "-1s"}},
		{"chunk events", "chunk_events: {action: drop}", []string{"processors::stream: chunk_events::action", "drop"}},
		{"role", "vocabulary: {attributes: {my.key: {role: chunks}}}", []string{"processors::stream: vocabulary::attributes::my.key", "chunks"}},
		// These are found by the Collector itself, which names the component on a line of its own.
		{"not a duration", "min_spread: soon", []string{"min_spread", "invalid duration"}},
		{"unknown key", "strategy: split", []string{"invalid keys", "strategy"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			_, err := collector.Run(ctx, collector.Options{
				OutputDir: t.TempDir(),
				Configs: []string{collector.Base, `
processors:
  stream:
    ` + tc.setting + `
service:
  pipelines:
    traces: {receivers: [otlp], processors: [stream], exporters: [file/traces]}
`},
			})
			var exit *collector.ExitError
			require.ErrorAs(t, err, &exit)
			assert.NotZero(t, exit.Code)
			assert.NotContains(t, exit.Logs, "panic")
			assert.Contains(t, exit.Logs, "stream")
			named := false
			for line := range strings.Lines(exit.Logs) {
				named = named || !slices.ContainsFunc(tc.line, func(part string) bool { return !strings.Contains(line, part) })
			}
			assert.True(t, named, "no line says %q:\n%s", tc.line, exit.Logs)
		})
	}
}
