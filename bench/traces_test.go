// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"

	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/groupbytraceprocessor"
	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/transformprocessor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/bench/internal/payload"
	"github.com/otelcol-stream/otelcol-stream/streamprocessor"
)

const (
	batch        = 1_000
	chunkedBatch = 100
)

// The floor: what every collector does with a batch, whatever its processors are.

func unmarshal(b *testing.B, td ptrace.Traces) {
	decode, _ := tracesOf(b, td)
	require.Equal(b, td, decode())
	n := td.SpanCount()
	var out ptrace.Traces
	measure(b, n, func() struct{} { return struct{}{} }, func(struct{}) { out = decode() })
	require.Equal(b, n, out.SpanCount())
}

func marshal(b *testing.B, td ptrace.Traces) {
	decode, encoded := tracesOf(b, td)
	m := &ptrace.ProtoMarshaler{}
	var out []byte
	measure(b, td.SpanCount(), once(decode), func(td ptrace.Traces) {
		var err error
		if out, err = m.MarshalTraces(td); err != nil {
			b.Fatal(err)
		}
	})
	require.Equal(b, encoded, out)
}

func BenchmarkPlainUnmarshal(b *testing.B) { unmarshal(b, payload.Plain(batch)) }
func BenchmarkPlainMarshal(b *testing.B)   { marshal(b, payload.Plain(batch)) }
func BenchmarkGenAIUnmarshal(b *testing.B) { unmarshal(b, payload.GenAI(batch)) }
func BenchmarkGenAIMarshal(b *testing.B)   { marshal(b, payload.GenAI(batch)) }
func BenchmarkMixUnmarshal(b *testing.B)   { unmarshal(b, payload.Mix(batch)) }
func BenchmarkMixMarshal(b *testing.B)     { marshal(b, payload.Mix(batch)) }
func BenchmarkChunkedUnmarshal(b *testing.B) {
	unmarshal(b, payload.Chunked(chunkedBatch, payload.ChunksPerSpan))
}
func BenchmarkChunkedMarshal(b *testing.B) {
	marshal(b, payload.Chunked(chunkedBatch, payload.ChunksPerSpan))
}
func BenchmarkChunkSpansUnmarshal(b *testing.B) { unmarshal(b, chunkSpans()) }

// What it takes to look at every key, or at every event, and to do nothing. A batch does not fit into the inner caches. No processor that reads
// all keys or events can be faster.

func walk(b *testing.B, td ptrace.Traces, look func(ptrace.Span) int, want int) {
	decode, _ := tracesOf(b, td)
	seen := 0
	measure(b, td.SpanCount(), once(decode), func(td ptrace.Traces) {
		seen = 0
		spans := spansOf(td)
		for i := range spans.Len() {
			seen += look(spans.At(i))
		}
	})
	require.Equal(b, want, seen)
}

func BenchmarkPlainWalk(b *testing.B) {
	walk(b, payload.Plain(batch), func(s ptrace.Span) (n int) {
		for key := range s.Attributes().All() {
			if len(key) > 0 {
				n++
			}
		}
		return n
	}, batch*payload.PlainAttributes)
}

func BenchmarkChunkedWalk(b *testing.B) {
	walk(b, payload.Chunked(chunkedBatch, payload.ChunksPerSpan), func(s ptrace.Span) (n int) {
		events := s.Events()
		for i := range events.Len() {
			if e := events.At(i); e.Name() == payload.ChunkEvent && e.Timestamp() > payload.Epoch {
				n++
			}
		}
		return n
	}, chunkedBatch*payload.ChunksPerSpan)
}

// BenchmarkChunkedCopy writes a stream span of a hundred chunks, its attributes ready-made: what pdata takes for a value of its own for each
// number of the gap histogram and for the rest, whoever works them out.
func BenchmarkChunkedCopy(b *testing.B) {
	ready := ptrace.NewSpan()
	spansOf(splitChunked(b)).At(chunkedBatch).CopyTo(ready)
	require.Equal(b, "stream", text(ready, "stream.phase"))
	decode, _ := tracesOf(b, payload.Chunked(chunkedBatch, payload.ChunksPerSpan))
	written := 0
	measure(b, chunkedBatch, decode, func(td ptrace.Traces) {
		spans := spansOf(td)
		for range chunkedBatch {
			ready.CopyTo(spans.AppendEmpty())
		}
		written = spans.Len()
	})
	require.Equal(b, 2*chunkedBatch, written)
}

// This project's processor, as it comes.

func stream(b *testing.B, td ptrace.Traces, check func(in, out ptrace.Traces)) {
	decode, _ := tracesOf(b, td)
	sink := &tracesSink{}
	p := startTraces(b, streamprocessor.NewFactory(), nil, sink)
	consume(b, p)(decode())
	check(td, sink.last)
	out := sink.last.SpanCount()
	measure(b, td.SpanCount(), inputs(decode, td, sink.last), consume(b, p))
	require.Equal(b, out, sink.last.SpanCount())
	require.Equal(b, sink.calls*out, sink.spans)
}

// inputs is once for a component that let the first batch through as it was.
func inputs(decode func() ptrace.Traces, in, out ptrace.Traces) func() ptrace.Traces {
	if assert.ObjectsAreEqual(in, out) {
		return once(decode)
	}
	return decode
}

func BenchmarkPlainProcessor(b *testing.B) {
	stream(b, payload.Plain(batch), func(in, out ptrace.Traces) { require.Equal(b, in, out) })
}

func BenchmarkGenAIProcessor(b *testing.B) {
	stream(b, payload.GenAI(batch), func(in, out ptrace.Traces) {
		require.Equal(b, 2*in.SpanCount(), out.SpanCount())
		eachPair(in, out, batch, func(_, request, stream ptrace.Span) { checkSplit(b, request, stream, 0) })
	})
}

func BenchmarkChunkedProcessor(b *testing.B) {
	stream(b, payload.Chunked(chunkedBatch, payload.ChunksPerSpan), func(in, out ptrace.Traces) {
		require.Equal(b, 2*in.SpanCount(), out.SpanCount())
		eachPair(in, out, chunkedBatch, func(_, request, stream ptrace.Span) {
			checkSplit(b, request, stream, payload.ChunksPerSpan)
		})
	})
}

func BenchmarkMixProcessor(b *testing.B) {
	stream(b, payload.Mix(batch), func(in, out ptrace.Traces) {
		require.Equal(b, in.SpanCount()*105/100, out.SpanCount())
		require.Equal(b, batch*95/100, countPhase(out, ""))
		require.Equal(b, batch*5/100, countPhase(out, "request"))
		require.Equal(b, batch*5/100, countPhase(out, "stream"))
	})
}

// What it takes to send the mix as it comes, and what the processor makes of it: to marshal it and to compress it as the exporter does by default. Both
// are per span that came in. The difference is what the new spans cost behind the processor, whoever made them.

func export(b *testing.B, td ptrace.Traces) {
	decode, _ := tracesOf(b, td)
	m := &ptrace.ProtoMarshaler{}
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	measure(b, batch, once(decode), func(td ptrace.Traces) {
		encoded, err := m.MarshalTraces(td)
		if err != nil {
			b.Fatal(err)
		}
		out.Reset()
		z.Reset(&out)
		if _, err := z.Write(encoded); err != nil {
			b.Fatal(err)
		}
		if err := z.Close(); err != nil {
			b.Fatal(err)
		}
	})
	r, err := gzip.NewReader(&out)
	require.NoError(b, err)
	encoded, err := io.ReadAll(r)
	require.NoError(b, err)
	_, want := tracesOf(b, td)
	require.Equal(b, want, encoded)
}

func BenchmarkMixExport(b *testing.B)      { export(b, payload.Mix(batch)) }
func BenchmarkMixSplitExport(b *testing.B) { export(b, split(b, payload.Mix(batch))) }

// eachPair visits, for every one of n spans that were all split, the span before, its request span and its stream span.
func eachPair(in, out ptrace.Traces, n int, visit func(before, request, stream ptrace.Span)) {
	from, to := spansOf(in), spansOf(out)
	for i := range n {
		visit(from.At(i), to.At(i), to.At(n+i))
	}
}

func checkSplit(b *testing.B, request, stream ptrace.Span, chunks int) {
	b.Helper()
	require.Equal(b, "request", text(request, "stream.phase"))
	require.Equal(b, "stream", text(stream, "stream.phase"))
	require.Equal(b, request.SpanID(), stream.ParentSpanID())
	require.Equal(b, request.StartTimestamp()+pcommon.Timestamp(payload.FirstChunk), stream.StartTimestamp())
	require.Zero(b, request.Events().Len()+stream.Events().Len())
	if chunks > 0 {
		v, ok := stream.Attributes().Get("stream.chunk.count")
		require.True(b, ok)
		require.EqualValues(b, chunks, v.Int())
		_, ok = stream.Attributes().Get("stream.chunk.gap.p99")
		require.True(b, ok)
	}
}

func spansOf(td ptrace.Traces) ptrace.SpanSlice {
	return td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
}

func text(s ptrace.Span, key string) string {
	if v, ok := s.Attributes().Get(key); ok {
		return v.AsString()
	}
	return ""
}

func countPhase(td ptrace.Traces, phase string) (n int) {
	for _, s := range spansOf(td).All() {
		if text(s, "stream.phase") == phase {
			n++
		}
	}
	return n
}

// transformprocessor.

func transform(b *testing.B, td ptrace.Traces, context string, statements []string, check func(in, out ptrace.Traces)) {
	decode, _ := tracesOf(b, td)
	sink := &tracesSink{}
	p := startTraces(b, transformprocessor.NewFactory(), settings{
		"error_mode":       "propagate",
		"trace_statements": []any{settings{"context": context, "statements": statements}},
	}, sink)
	consume(b, p)(decode())
	check(td, sink.last)
	measure(b, td.SpanCount(), inputs(decode, td, sink.last), consume(b, p))
	require.Equal(b, td.SpanCount(), sink.last.SpanCount())
}

// never asks of every span what tells a streaming one: the least that a statement has to do to find them.
var never = []string{`set(span.attributes["stream"], true) where span.attributes["gen_ai.request.stream"] == true`}

func BenchmarkPlainTransformNever(b *testing.B) {
	transform(b, payload.Plain(batch), "span", never, func(in, out ptrace.Traces) { require.Equal(b, in, out) })
}

func BenchmarkMixTransformNever(b *testing.B) {
	transform(b, payload.Mix(batch), "span",
		[]string{`set(span.attributes["stream"], true) where span.attributes["no.such.key"] == true`},
		func(in, out ptrace.Traces) { require.Equal(b, in, out) })
}

func transformSet(b *testing.B, td ptrace.Traces) {
	transform(b, td, "span", []string{`set(span.attributes["stream.phase"], "whole")`}, func(in, out ptrace.Traces) {
		require.Equal(b, in.SpanCount(), countPhase(out, "whole"))
	})
}

func BenchmarkPlainTransformSet(b *testing.B) { transformSet(b, payload.Plain(batch)) }
func BenchmarkGenAITransformSet(b *testing.B) { transformSet(b, payload.GenAI(batch)) }

// eventStatements are the shortest way that we know to get the time to first chunk, the number of chunks and the largest gap out of span
// events with statements. They run once per event, trust the order of the events, and leave the time of the last event behind.
var eventStatements = []string{
	`set(span.attributes["ttfb_ns"], spanevent.time_unix_nano - span.start_time_unix_nano) where span.attributes["n"] == nil`,
	`set(span.attributes["max_gap_ns"], 0) where span.attributes["n"] == nil`,
	`set(span.attributes["max_gap_ns"], spanevent.time_unix_nano - span.attributes["last_ns"]) where span.attributes["n"] != nil and spanevent.time_unix_nano - span.attributes["last_ns"] > span.attributes["max_gap_ns"]`,
	`set(span.attributes["n"], 0) where span.attributes["n"] == nil`,
	`set(span.attributes["last_ns"], spanevent.time_unix_nano)`,
	`set(span.attributes["n"], span.attributes["n"] + 1)`,
}

func BenchmarkChunkedTransformEvents(b *testing.B) {
	transform(b, payload.Chunked(chunkedBatch, payload.ChunksPerSpan), "spanevent", eventStatements, func(in, out ptrace.Traces) {
		for i, s := range spansOf(out).All() {
			var longest pcommon.Timestamp
			events := spansOf(in).At(i).Events()
			for e := 1; e < events.Len(); e++ {
				longest = max(longest, events.At(e).Timestamp()-events.At(e-1).Timestamp())
			}
			for key, want := range map[string]int64{
				"ttfb_ns": payload.FirstChunk.Nanoseconds(), "n": payload.ChunksPerSpan, "max_gap_ns": int64(longest),
			} {
				v, ok := s.Attributes().Get(key)
				require.True(b, ok, key)
				require.Equal(b, want, v.Int(), key)
			}
		}
	})
}

// groupbytraceprocessor, which any processor needs before it that wants whole traces. It works in goroutines of its own, so that a round
// lasts until the last span has come out; waiting takes no CPU time.

func groupByTrace(b *testing.B, td ptrace.Traces) {
	decode, _ := tracesOf(b, td)
	sink := newWaitingSink()
	p := startTraces(b, groupbytraceprocessor.NewFactory(), settings{"wait_duration": "10ms", "num_traces": 1_000_000}, sink)
	send := consume(b, p)
	n := td.SpanCount()
	var round uint64
	measure(b, n, func() ptrace.Traces { round++; return ofRound(decode(), round) }, func(td ptrace.Traces) {
		sink.expect(n)
		send(td)
		sink.wait(b)
	})
	require.Zero(b, sink.left.Load())
}

func BenchmarkPlainGroupByTrace(b *testing.B)      { groupByTrace(b, payload.Plain(batch)) }
func BenchmarkChunkSpansGroupByTrace(b *testing.B) { groupByTrace(b, chunkSpans()) }
