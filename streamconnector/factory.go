// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"

	"github.com/otelcol-stream/otelcol-stream/streamconnector/internal/metadata"
)

const (
	defaultNamespace        = "stream"
	defaultGenAIPrefix      = "gen_ai.client.operation"
	defaultMaxSize          = 160
	defaultFlushInterval    = 15 * time.Second
	defaultExpiration       = 5 * time.Minute
	defaultCardinalityLimit = 2000
	defaultMaxExemplars     = 5
)

// NewFactory returns the factory of the connector.
func NewFactory() connector.Factory {
	return connector.NewFactory(
		metadata.Type,
		createDefaultConfig,
		connector.WithTracesToMetrics(createTracesToMetrics, metadata.TracesToMetricsStability),
	)
}

func createDefaultConfig() component.Config {
	return &Config{
		Namespace:                   defaultNamespace,
		GenAIPrefix:                 defaultGenAIPrefix,
		Histogram:                   HistogramConfig{Type: histogramExplicit, MaxSize: defaultMaxSize},
		ResourceAttributes:          []string{allResourceAttributes},
		AggregationTemporality:      temporalityCumulative,
		MetricsFlushInterval:        defaultFlushInterval,
		MetricsExpiration:           defaultExpiration,
		AggregationCardinalityLimit: defaultCardinalityLimit,
		Exemplars:                   ExemplarsConfig{Enabled: true, MaxPerDataPoint: defaultMaxExemplars},
	}
}

func createTracesToMetrics(_ context.Context, set connector.Settings, cfg component.Config, next consumer.Metrics) (connector.Traces, error) {
	return newConnector(set, cfg.(*Config), next)
}
