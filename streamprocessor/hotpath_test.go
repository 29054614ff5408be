// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/internal/spanlaws"
	"github.com/otelcol-stream/otelcol-stream/internal/streamspan"
)

// plainSpan has the 15 attributes of an HTTP server's span, which say nothing of streaming.
func plainSpan(s ptrace.Span) {
	ids(s)
	s.SetName("GET /orders/{id}")
	s.SetKind(ptrace.SpanKindServer)
	m := s.Attributes()
	for key, v := range map[string]string{
		"http.request.method": "GET", "http.route": "/orders/{id}", "url.scheme": "https", "url.path": "/orders/4711",
		"server.address": "shop.example.com", "client.address": "192.0.2.7", "network.protocol.version": "1.1",
		"network.peer.address": "10.0.0.1", "user_agent.original": "curl/8.5.0", "thread.name": "http-nio-8080-exec-3",
		"enduser.id": "u-17",
	} {
		m.PutStr(key, v)
	}
	m.PutInt("http.response.status_code", 200)
	m.PutInt("server.port", 443)
	m.PutInt("thread.id", 61)
	m.PutInt("network.peer.port", 52_044)
}

// streamingSpan is a GenAI call that streams and records when its first chunk came, but no chunks.
func streamingSpan(s ptrace.Span) {
	ids(s)
	s.SetName("chat gpt-4o-mini")
	s.SetKind(ptrace.SpanKindClient)
	m := s.Attributes()
	m.PutStr("gen_ai.operation.name", "chat")
	m.PutStr("gen_ai.provider.name", "openai")
	m.PutStr("gen_ai.request.model", "gpt-4o-mini")
	m.PutBool("gen_ai.request.stream", true)
	m.PutDouble(ttfcKey, 0.4)
	m.PutInt("gen_ai.usage.output_tokens", 100)
	m.PutEmptySlice("gen_ai.response.finish_reasons").AppendEmpty().SetStr("stop")
}

// chunkedSpan records 100 chunks, 15 ms apart from 400 ms on.
func chunkedSpan(s ptrace.Span) {
	ids(s)
	s.SetName("openai.chat")
	s.SetKind(ptrace.SpanKindClient)
	m := s.Attributes()
	m.PutStr("gen_ai.system", "openai")
	m.PutStr("gen_ai.request.model", "gpt-4o-mini")
	m.PutBool("gen_ai.is_streaming", true)
	m.PutInt("gen_ai.usage.output_tokens", 100)
	s.Events().EnsureCapacity(100)
	for i := range 100 {
		event(s, "gen_ai.content.completion.chunk", 400*ms+time.Duration(i)*15*ms)
	}
}

func ids(s ptrace.Span) {
	s.SetTraceID(pcommon.TraceID{1})
	s.SetSpanID(pcommon.SpanID{2})
	s.SetStartTimestamp(testStart)
	s.SetEndTimestamp(testStart + pcommon.Timestamp(2*time.Second))
}

// batchOf returns n spans, each of a trace of its own.
func batchOf(n int, fill func(ptrace.Span)) ptrace.Traces {
	td := ptrace.NewTraces()
	spans := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	spans.EnsureCapacity(n)
	for i := range n {
		s := spans.AppendEmpty()
		fill(s)
		s.SetTraceID(pcommon.TraceID{1, byte(i), byte(i >> 8)})
	}
	return td
}

func newWorker(t testing.TB) *worker {
	t.Helper()
	p, err := newTracesProcessor(nopSettings(), createDefaultConfig().(*Config))
	require.NoError(t, err)
	return p.workers.Get().(*worker)
}

// TestPlainSpansAllocateNothing measures what the processor does with a batch once it has it: all of it but the telemetry of the
// helper around it. Spans that do not stream, with or without something that looks like it, must not allocate.
func TestPlainSpansAllocateNothing(t *testing.T) {
	for name, fill := range map[string]func(ptrace.Span){
		"no evidence": plainSpan,
		"a flag that is false": func(s ptrace.Span) {
			streamingSpan(s)
			s.Attributes().PutBool("gen_ai.request.stream", false)
		},
		"a time to first token of a server": func(s ptrace.Span) {
			plainSpan(s)
			s.Attributes().PutDouble("gen_ai.latency.time_to_first_token", 0.3)
		},
		"a unary call with message events": func(s ptrace.Span) {
			plainSpan(s)
			event(s, "message", ms).Attributes().PutStr("message.type", "RECEIVED")
			event(s, "message", 2*ms).Attributes().PutStr("message.type", "SENT")
		},
		"a body in two writes": func(s ptrace.Span) {
			plainSpan(s)
			event(s, "write", ms)
			event(s, "write", 2*ms)
		},
		"an exception": func(s ptrace.Span) {
			plainSpan(s)
			event(s, "exception", ms).Attributes().PutStr("exception.message", "boom")
		},
		"processed before": func(s ptrace.Span) {
			streamingSpan(s)
			s.Attributes().PutStr("stream.phase", "request")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorker(t)
			td := batchOf(50, fill)
			before := spanlaws.Marshal(td)
			assert.Zero(t, testing.AllocsPerRun(100, func() { w.process(td) }))
			assert.Equal(t, before, spanlaws.Marshal(td))
		})
	}
}

// TestConcurrentBatches: batches under way at once share nothing. The race detector watches, and each must come out as it does alone.
func TestConcurrentBatches(t *testing.T) {
	p, err := newTracesProcessor(nopSettings(), createDefaultConfig().(*Config))
	require.NoError(t, err)
	var inputs []ptrace.Traces
	for _, name := range []string{
		"01-role-only-first-chunk", "04-event-limit-dropped-oldest", "06-impossible-times", "12-grpc-unary-stream-cancel",
		"14-mid-stream-stall", "16-same-rate-smaller-chunks",
	} {
		inputs = append(inputs, readCase(t, name))
	}
	run := func(in ptrace.Traces) ([]byte, error) {
		td := ptrace.NewTraces()
		in.CopyTo(td)
		out, failed := p.processTraces(context.Background(), td)
		return spanlaws.Marshal(out), failed
	}
	want := make([][]byte, len(inputs))
	for i, in := range inputs {
		want[i], err = run(in)
		require.NoError(t, err)
	}
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for round := range 50 {
				i := (worker + round) % len(inputs)
				got, failed := run(inputs[i])
				if assert.NoError(t, failed) {
					assert.Equal(t, want[i], got)
				}
			}
		})
	}
	wg.Wait()
}

const benchmarkBatch = 200

// BenchmarkTraces measures the work on one span of each kind. Every iteration gets a batch that has not been processed.
func BenchmarkTraces(b *testing.B) {
	for _, bb := range []struct {
		name  string
		fill  func(ptrace.Span)
		phase streamspan.Phase
		spans int // out of the batch
	}{
		{"plain span of 15 attributes", plainSpan, streamspan.PhaseNone, benchmarkBatch},
		{"streaming span without chunks", streamingSpan, streamspan.PhaseRequest, 2 * benchmarkBatch},
		{"streaming span of 100 chunks", chunkedSpan, streamspan.PhaseRequest, 2 * benchmarkBatch},
	} {
		b.Run(bb.name, func(b *testing.B) {
			in := batchOf(benchmarkBatch, bb.fill)
			w := newWorker(b)
			var td ptrace.Traces
			spans := 0
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				td = ptrace.NewTraces()
				in.CopyTo(td)
				b.StartTimer()
				w.process(td)
				spans += benchmarkBatch
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(spans), "ns/span")
			require.Equal(b, bb.spans, td.SpanCount())
			require.Equal(b, bb.phase, phaseOf(spansOf(td)[0]), fmt.Sprint(spansOf(td)[0].Attributes().AsRaw()))
		})
	}
}
