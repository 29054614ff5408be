// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	_ "embed"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Base is the configuration that Start puts before a test's own: an otlp receiver, the exporters file/traces and
// file/metrics, the health check and the collector's own metrics. It has no pipeline.
//
//go:embed base.yaml
var Base string

// Start runs Base with the given YAML on top, for the length of the test:
//
//	c := collector.Start(t, `
//	processors: {stream: {}}
//	service:
//	  pipelines:
//	    traces: {receivers: [otlp], processors: [stream], exporters: [file/traces]}
//	`)
//	require.NoError(t, c.PostTraces(t.Context(), td))
//	got := c.StopAndReadTraces(t)
func Start(t testing.TB, config string) *Process {
	t.Helper()
	return StartWith(t, Options{Configs: []string{Base, config + "\n"}})
}

// StartWith is Start with full control; Base is not added. OutputDir is a new temporary folder if none is given.
// The collector is stopped at the end of the test at the latest, and its log is printed if the test failed.
func StartWith(t testing.TB, opts Options) *Process {
	t.Helper()
	if opts.OutputDir == "" {
		opts.OutputDir = t.TempDir()
	}
	p, err := Run(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = p.Stop()
		if t.Failed() {
			t.Logf("log of the collector:\n%s", p.Logs())
		}
	})
	return p
}

// StopAndReadTraces stops the collector, which must end with success, and returns what file/traces of Base wrote.
func (p *Process) StopAndReadTraces(t testing.TB) []ptrace.Traces {
	t.Helper()
	require.NoError(t, p.Stop())
	all, err := ReadTraces(filepath.Join(p.OutputDir, "traces.jsonl"))
	require.NoError(t, err)
	return all
}

// StopAndReadMetrics stops the collector, which must end with success, and returns what file/metrics of Base wrote.
func (p *Process) StopAndReadMetrics(t testing.TB) []pmetric.Metrics {
	t.Helper()
	require.NoError(t, p.Stop())
	all, err := ReadMetrics(filepath.Join(p.OutputDir, "metrics.jsonl"))
	require.NoError(t, err)
	return all
}
