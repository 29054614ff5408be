// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/otelcol-stream/otelcol-stream/test/collector"
)

// What the README promises is in the distribution, and nothing that nobody asked for has come in.
func TestComponents(t *testing.T) {
	out, err := collector.Command(t.Context(), nil, "components")
	require.NoError(t, err)
	type component struct {
		Name string `yaml:"name"`
	}
	var got struct {
		Receivers, Processors, Exporters, Connectors, Extensions []component
		Providers                                                []struct {
			Scheme string `yaml:"scheme"`
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(out), &got))
	names := func(components []component) []string {
		var list []string
		for _, c := range components {
			list = append(list, c.Name)
		}
		return list
	}
	assert.ElementsMatch(t, []string{"otlp", "zipkin"}, names(got.Receivers))
	assert.ElementsMatch(t, []string{"stream", "memory_limiter", "batch", "cumulative_to_delta", "delta_to_cumulative"}, names(got.Processors))
	assert.ElementsMatch(t, []string{"otlp_grpc", "otlp_http", "file", "debug", "prometheus", "prometheus_remote_write", "nop", "load_balancing"}, names(got.Exporters))
	assert.ElementsMatch(t, []string{"forward", "stream"}, names(got.Connectors))
	assert.ElementsMatch(t, []string{"health_check", "pprof", "zpages", "file_storage", "bearertokenauth"}, names(got.Extensions))
	var schemes []string
	for _, p := range got.Providers {
		schemes = append(schemes, p.Scheme)
	}
	assert.ElementsMatch(t, []string{"env", "file", "http", "https", "yaml"}, schemes)
}
