// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"context"

	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/processor"
)

type metricsProcessor struct{}

func newMetricsProcessor(processor.Settings, *Config) (*metricsProcessor, error) {
	return &metricsProcessor{}, nil
}

func (*metricsProcessor) processMetrics(_ context.Context, md pmetric.Metrics) (pmetric.Metrics, error) {
	return md, nil
}

func (*metricsProcessor) shutdown(context.Context) error { return nil }
