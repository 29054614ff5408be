// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/binary"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/bench/internal/payload"
	"github.com/otelcol-stream/otelcol-stream/streamprocessor"
)

var sizes = []int{10, 100, 1_000, 10_000, 100_000, 1_000_000}

const (
	// growthItems is how many spans or events are timed at a time when the size is less.
	growthItems = 10_000
	// growthSamples is the number of such times, of which the median is reported.
	growthSamples = 7
)

// grow times the work on several inputs of n items at a time, enough of them for the clock not to matter.
func grow[T any](b *testing.B, n int, fresh func() T, run func(T)) {
	b.Helper()
	inputs := make([]T, max(1, growthItems/n))
	samples := growthSamples
	switch {
	case n >= 100*growthItems:
		samples = 1 // gigabytes to decode, and long enough to tell
	case n >= growthItems:
		samples = 3
	}
	run(fresh())
	var times []time.Duration
	for range samples {
		// One collection leaves what pools hold, two do not: a component would be timed as if it had seen no batch of this size.
		restore := debug.SetGCPercent(-1)
		for i := range inputs {
			inputs[i] = fresh()
		}
		runtime.GC()
		start := cpuTime()
		for _, in := range inputs {
			run(in)
		}
		times = append(times, cpuTime()-start)
		debug.SetGCPercent(restore)
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2])/float64(n*len(inputs)), "ns/op")
}

// BenchmarkGrowthPlain: the time per span over the spans of a batch, none of which streams.
func BenchmarkGrowthPlain(b *testing.B) {
	for _, n := range sizes {
		b.Run(strconv.Itoa(n), func(b *testing.B) { growBatch(b, payload.Plain(n), n) })
	}
}

// BenchmarkGrowthStreaming: the same when all of them do. The spans have four attributes, at all sizes: with the 25 of the other benchmarks,
// a million in one batch and what they become would take 10 GB. What a span has is copied to its stream span, so that the times are less than
// theirs; the series says how they grow.
func BenchmarkGrowthStreaming(b *testing.B) {
	for _, n := range sizes {
		b.Run(strconv.Itoa(n), func(b *testing.B) { growBatch(b, payload.Small(n), 2*n) })
	}
}

func growBatch(b *testing.B, td ptrace.Traces, out int) {
	n := td.SpanCount()
	decode, _ := tracesOf(b, td)
	sink := &tracesSink{}
	p := startTraces(b, streamprocessor.NewFactory(), nil, sink)
	fresh := func() ptrace.Traces {
		sink.last = ptrace.NewTraces() // of a million spans two outputs at a time would be gigabytes
		return decode()
	}
	for b.Loop() {
		grow(b, n, fresh, consume(b, p))
	}
	require.Equal(b, out, sink.last.SpanCount())
	sink.last = ptrace.NewTraces()
}

// BenchmarkGrowthEvents: the time per event over the chunk events of a span.
func BenchmarkGrowthEvents(b *testing.B) {
	for _, n := range sizes {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			decode, _ := tracesOf(b, payload.Chunked(1, n))
			sink := &tracesSink{}
			p := startTraces(b, streamprocessor.NewFactory(), nil, sink)
			for b.Loop() {
				grow(b, n, decode, consume(b, p))
			}
			require.Equal(b, 2, sink.last.SpanCount())
		})
	}
}

// BenchmarkGrowthOpenStreams: the time per chunk span over the streams that are open meanwhile. Each timed span goes to another of them.
func BenchmarkGrowthOpenStreams(b *testing.B) {
	const perBatch = 1_000
	for _, n := range sizes {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			sink := &tracesSink{}
			p := startTraces(b, streamprocessor.NewFactory(), folding, sink)
			send := consume(b, p)
			open(b, send, n)
			next := 2 * n // those before have opened the streams, and would be recognised as duplicates
			for b.Loop() {
				grow(b, perBatch, func() ptrace.Traces {
					td := chunkBatch(next, perBatch, n)
					next += perBatch
					return td
				}, send)
			}
			require.Zero(b, sink.spans)
		})
	}
}

// open begins n streams with two chunks each, far enough apart to be streams.
func open(b *testing.B, send func(ptrace.Traces), n int) {
	b.Helper()
	for from := 0; from < 2*n; from += growthItems {
		send(chunkBatch(from, min(growthItems, 2*n-from), n))
	}
}

// chunkBatch returns chunk spans number from, from+1, …, where number i is of stream i modulo n.
func chunkBatch(from, count, n int) ptrace.Traces {
	td := ptrace.NewTraces()
	ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
	ss.Scope().SetName("opentelemetry.instrumentation.asgi")
	ss.Spans().EnsureCapacity(count)
	for i := from; i < from+count; i++ {
		s := ss.Spans().AppendEmpty()
		stream, chunk := uint64(i%n), uint64(i/n)
		s.SetTraceID(traceID(stream))
		s.SetParentSpanID(spanID(stream + 1))
		s.SetSpanID(spanID(1<<40 + uint64(i)))
		s.SetName("POST /chat http send")
		s.SetKind(ptrace.SpanKindInternal)
		at := payload.Epoch + payload.Nanos(time.Duration(chunk)*200*time.Millisecond)
		s.SetStartTimestamp(at)
		s.SetEndTimestamp(at + 40_000)
		s.Attributes().PutStr("asgi.event.type", "http.response.body")
	}
	return td
}

func traceID(n uint64) (id [16]byte) {
	// Mixed, as random ids are: in a map or a shard, neighbours must not lie side by side.
	binary.BigEndian.PutUint64(id[:], n*0x9e3779b97f4a7c15+1)
	binary.BigEndian.PutUint64(id[8:], (n+1)*0xbf58476d1ce4e5b9)
	return id
}

func spanID(n uint64) (id [8]byte) {
	binary.BigEndian.PutUint64(id[:], n)
	return id
}
