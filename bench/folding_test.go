// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/binary"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/bench/internal/payload"
	"github.com/otelcol-stream/otelcol-stream/streamprocessor"
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

func (s *waitingSink) wait(b *testing.B) {
	b.Helper()
	select {
	case <-s.done:
	case <-time.After(10 * time.Second):
		b.Fatalf("%d spans have not come out", s.left.Load())
	}
}

// BenchmarkChunkSpansProcessor folds the chunk spans of 1,000 streams into their parents, which come in the same batch: the time is per
// span, as groupbytraceprocessor's is, which only collects them.
func BenchmarkChunkSpansProcessor(b *testing.B) {
	td := chunkSpans()
	decode, _ := tracesOf(b, td)
	sink := &tracesSink{}
	p := startTraces(b, streamprocessor.NewFactory(), folding, sink)
	send := consume(b, p)
	n := td.SpanCount()
	var round uint64
	measure(b, n, func() ptrace.Traces { round++; return ofRound(decode(), round) }, func(td ptrace.Traces) {
		sink.spans = 0
		send(td)
	})
	require.Equal(b, 2*openStreams, sink.spans)
}

// ofRound gives every span a trace of its own for each round: chunk spans of a stream that has gone out would pass as late.
func ofRound(td ptrace.Traces, round uint64) ptrace.Traces {
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				id := s.TraceID()
				binary.BigEndian.PutUint64(id[:], binary.BigEndian.Uint64(id[:])+round)
				s.SetTraceID(id)
			}
		}
	}
	return td
}

var folding = settings{"chunk_spans": settings{"enabled": true, "max_streams": 2_000_000, "wait": "1h"}}

// BenchmarkChunkSpansProcessorOpen folds chunk spans whose parents come in a later batch, so that every stream stays open in between.
func BenchmarkChunkSpansProcessorOpen(b *testing.B) {
	children, parents := payload.ChunkSpans(openStreams, chunksPerStream)
	decodeChildren, _ := tracesOf(b, children)
	decodeParents, _ := tracesOf(b, parents)
	sink := &tracesSink{}
	p := startTraces(b, streamprocessor.NewFactory(), folding, sink)
	send := consume(b, p)
	type batches struct{ children, parents ptrace.Traces }
	var round uint64
	measure(b, children.SpanCount()+parents.SpanCount(), func() batches {
		round++
		return batches{ofRound(decodeChildren(), round), ofRound(decodeParents(), round)}
	}, func(in batches) {
		sink.spans = 0
		send(in.children)
		send(in.parents)
	})
	require.Equal(b, 2*openStreams, sink.spans)
}

// BenchmarkOpenStreamBytes reports what an open stream holds, with 20 and with 1,000 chunks.
func BenchmarkOpenStreamBytes(b *testing.B) {
	for chunks, streams := range map[int]int{chunksPerStream: openStreams, 1_000: 100} {
		b.Run(strconv.Itoa(chunks), func(b *testing.B) {
			held := 0.0
			for b.Loop() {
				held = heldBytes(b, streams, chunks)
			}
			b.ReportMetric(held/float64(streams), "B/stream")
			b.ReportMetric(held/float64(streams)-8*float64(chunks), "B/stream-beyond-8-a-chunk")
		})
	}
}

// heldBytes is how much the heap grows while the streams are open, the batches that brought their chunks gone.
func heldBytes(b *testing.B, streams, chunks int) float64 {
	b.Helper()
	children, parents := payload.ChunkSpans(streams, chunks)
	decode, _ := tracesOf(b, children)
	decodeParents, _ := tracesOf(b, parents)
	children, parents = ptrace.NewTraces(), ptrace.NewTraces()
	sink := &tracesSink{}
	p := startTraces(b, streamprocessor.NewFactory(), folding, sink)
	send := consume(b, p)
	send(ptrace.NewTraces())
	before := liveBytes()
	send(decode())
	sink.last = ptrace.NewTraces()
	held := float64(liveBytes() - before)
	runtime.KeepAlive(decode) // and what it decodes
	send(decodeParents())
	require.Equal(b, 2*streams, sink.spans)
	return held
}

func liveBytes() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the first leaves what pools hold
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
