// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/otelcol-stream/otelcol-stream/streamprocessor/internal/metadata"
)

// chunkSpanResult is what became of a chunk span.
type chunkSpanResult int

const (
	spanFolded chunkSpanResult = iota
	spanLate
	spanNoStream
	spanDuplicate
	spanRefused
	chunkSpanResults
)

// chunkStreamResult is how a stream of chunk spans ended.
type chunkStreamResult int

const (
	streamJoined chunkStreamResult = iota
	streamOrphaned
	streamEvicted
	streamFlushed
	streamDropped
	chunkStreamResults
)

var (
	spanResultOptions   = resultOptions("folded", "late", "no_stream", "duplicate", "refused")
	streamResultOptions = resultOptions("joined", "orphaned", "evicted", "flushed", "dropped")
)

func resultOptions(names ...string) []metric.AddOption {
	options := make([]metric.AddOption, len(names))
	for i, name := range names {
		options[i] = metric.WithAttributeSet(attribute.NewSet(attribute.String("result", name)))
	}
	return options
}

// chunkCounts collects what happened to chunk spans, so that each instrument is touched once a batch.
type chunkCounts struct {
	spans   [chunkSpanResults]int64
	streams [chunkStreamResults]int64
}

func (c *chunkCounts) record(ctx context.Context, t *metadata.TelemetryBuilder) {
	for i, n := range c.spans {
		if n > 0 {
			t.ProcessorStreamChunkSpans.Add(ctx, n, spanResultOptions[i])
		}
	}
	for i, n := range c.streams {
		if n > 0 {
			t.ProcessorStreamChunkStreams.Add(ctx, n, streamResultOptions[i])
		}
	}
}
