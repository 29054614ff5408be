// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/bench/internal/payload"
)

const (
	openStreams     = 1_000
	chunksPerStream = 20
)

func chunkSpans() ptrace.Traces {
	children, parents := payload.ChunkSpans(openStreams, chunksPerStream)
	parents.ResourceSpans().MoveAndAppendTo(children.ResourceSpans())
	return children
}

// waitingSink is the next consumer of a processor that sends from goroutines of its own.
type waitingSink struct {
	left atomic.Int64
	done chan struct{}
}

func newWaitingSink() *waitingSink { return &waitingSink{done: make(chan struct{}, 1)} }

func (s *waitingSink) expect(spans int) { s.left.Store(int64(spans)) }

func (*waitingSink) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: true}
}

func (s *waitingSink) ConsumeTraces(_ context.Context, td ptrace.Traces) error {
	if s.left.Add(-int64(td.SpanCount())) == 0 {
		s.done <- struct{}{}
	}
	return nil
}
