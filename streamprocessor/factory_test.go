// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pipeline"

	"github.com/otelcol-stream/otelcol-stream/streamprocessor/internal/metadata"
)

func TestFactory(t *testing.T) {
	f := NewFactory()
	assert.Equal(t, metadata.Type, f.Type())
	cfg := f.CreateDefaultConfig()
	require.NoError(t, componenttest.CheckConfigStruct(cfg))
	assert.NotSame(t, cfg, f.CreateDefaultConfig())

	traces, err := f.CreateTraces(context.Background(), nopSettings(), cfg, consumertest.NewNop())
	require.NoError(t, err)
	assert.True(t, traces.Capabilities().MutatesData)
	metrics, err := f.CreateMetrics(context.Background(), nopSettings(), cfg, consumertest.NewNop())
	require.NoError(t, err)
	assert.True(t, metrics.Capabilities().MutatesData)
	_, err = f.CreateLogs(context.Background(), nopSettings(), cfg, consumertest.NewNop())
	require.ErrorIs(t, err, pipeline.ErrSignalNotSupported)
	for _, c := range []interface {
		Shutdown(context.Context) error
	}{traces, metrics} {
		require.NoError(t, c.Shutdown(context.Background()), "shutdown without start")
	}
}

// TestFactoryRejectsBadVocabulary: a caller that skips Validate gets the error from the constructor.
func TestFactoryRejectsBadVocabulary(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	cfg.Vocabulary.Trust = []string{"no.such.key"}
	_, err := NewFactory().CreateTraces(context.Background(), nopSettings(), cfg, consumertest.NewNop())
	require.ErrorContains(t, err, "no.such.key")
}
