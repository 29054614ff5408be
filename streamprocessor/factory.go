// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/processorhelper"

	"github.com/otelcol-stream/otelcol-stream/internal/cadence"
	"github.com/otelcol-stream/otelcol-stream/internal/streamspan"
	"github.com/otelcol-stream/otelcol-stream/streamprocessor/internal/metadata"
)

const (
	defaultSuffix     = " stream"
	defaultMinSpread  = 100 * time.Millisecond
	defaultKeepStalls = 3
	defaultWait       = 30 * time.Second
	defaultMaxStreams = 100_000
	defaultMaxChunks  = 100_000
)

var capabilities = consumer.Capabilities{MutatesData: true}

// NewFactory returns the factory of the processor.
func NewFactory() processor.Factory {
	return processor.NewFactory(
		metadata.Type,
		createDefaultConfig,
		processor.WithTraces(createTraces, metadata.TracesStability),
		processor.WithMetrics(createMetrics, metadata.MetricsStability),
	)
}

func createDefaultConfig() component.Config {
	c := cadence.DefaultSettings()
	return &Config{
		Mode:             streamspan.ModeSplit,
		StreamSpanSuffix: defaultSuffix,
		// Never gen_ai.operation.name, usage or content: LLM backends shall still see one generation.
		CopyAttributes: []string{
			"gen_ai.provider.name", "gen_ai.system", "gen_ai.request.model", "gen_ai.response.model",
			"server.address", "server.port", "http.route", "http.request.method", "rpc.system", "rpc.service", "rpc.method",
		},
		MinSpread:   defaultMinSpread,
		ChunkEvents: ChunkEventsConfig{Action: actionCollapse, KeepStalls: defaultKeepStalls},
		ChunkSpans:  ChunkSpansConfig{Wait: defaultWait, MaxStreams: defaultMaxStreams, MaxChunks: defaultMaxChunks},
		Cadence: CadenceConfig{
			StallThreshold: c.StallThreshold, HeadWindow: c.HeadWindow, FluidityDeadline: c.FluidityDeadline, ReaderRate: c.ReaderRate,
		},
	}
}

func createTraces(ctx context.Context, set processor.Settings, cfg component.Config, next consumer.Traces) (processor.Traces, error) {
	p, err := newTracesProcessor(set, cfg.(*Config))
	if err != nil {
		return nil, err
	}
	if cfg.(*Config).ChunkSpans.Enabled && p.table.HasChunkSpans() {
		return newFoldingProcessor(ctx, set, cfg.(*Config), p, next)
	}
	return processorhelper.NewTraces(ctx, set, cfg, next, p.processTraces,
		processorhelper.WithCapabilities(capabilities),
		processorhelper.WithShutdown(p.shutdown),
	)
}

func createMetrics(ctx context.Context, set processor.Settings, cfg component.Config, next consumer.Metrics) (processor.Metrics, error) {
	p, err := newMetricsProcessor(set, cfg.(*Config))
	if err != nil {
		return nil, err
	}
	return processorhelper.NewMetrics(ctx, set, cfg, next, p.processMetrics,
		processorhelper.WithCapabilities(capabilities),
		processorhelper.WithShutdown(p.shutdown),
	)
}
