// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/binary"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/test/collector"
)

func foldingConfig(settings string) string {
	return `
processors:
  stream: {chunk_spans: {enabled: true, ` + settings + `}}
service:
  pipelines:
    traces: {receivers: [otlp], processors: [stream], exporters: [file/traces]}
`
}

func asgiCase(t *testing.T) ptrace.Traces {
	t.Helper()
	all, err := collector.ReadTraces(filepath.Join(collector.Root(), "test", "e2e", "testdata", "asgi-span-per-chunk.jsonl"))
	require.NoError(t, err)
	require.Len(t, all, 1)
	return all[0]
}

// oneByOne gives every span a request of its own.
func oneByOne(td ptrace.Traces) []ptrace.Traces {
	var out []ptrace.Traces
	collector.Spans([]ptrace.Traces{td}, func(rs ptrace.ResourceSpans, ss ptrace.ScopeSpans, span ptrace.Span) {
		one := ptrace.NewTraces()
		r := one.ResourceSpans().AppendEmpty()
		rs.Resource().CopyTo(r.Resource())
		s := r.ScopeSpans().AppendEmpty()
		ss.Scope().CopyTo(s.Scope())
		span.CopyTo(s.Spans().AppendEmpty())
		out = append(out, one)
	})
	return out
}

func float(t *testing.T, span ptrace.Span, key string) float64 {
	t.Helper()
	v, ok := span.Attributes().Get(key)
	require.True(t, ok, key)
	return v.Double()
}

func assertASGISummary(t *testing.T, stream ptrace.Span) {
	t.Helper()
	assert.Equal(t, 4, intAttribute(stream, "stream.chunk.count"))
	assert.Equal(t, 4, intAttribute(stream, "stream.chunk.spans_folded"))
	assert.InDelta(t, 0.1, float(t, stream, "stream.chunk.gap.p50"), 1e-12)
	assert.InDelta(t, 0.198, float(t, stream, "stream.chunk.gap.p99"), 1e-12)
	assert.InDelta(t, 0.2, float(t, stream, "stream.chunk.gap.max"), 1e-12)
	assert.InDelta(t, 0.012109375, float(t, stream, "stream.chunk.gap.jitter"), 1e-12)
}

// TestFoldSpansOfManyRequests posts each span of a request that an ASGI server streamed in a request of its own: the chunk spans before
// their parent, then, with parent_wait, in any order.
func TestFoldSpansOfManyRequests(t *testing.T) {
	for name, c := range map[string]struct {
		settings string
		shuffle  bool
		leaves   bool // before the collector is told to end
	}{
		"parent last":            {"wait: 30s", false, true},
		"any order":              {"parent_wait: 2s", true, true},
		"flushed while it waits": {"parent_wait: 1h", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := collector.Start(t, foldingConfig(c.settings))
			requests := oneByOne(asgiCase(t))
			require.Len(t, requests, 7)
			if c.shuffle {
				rand.Shuffle(len(requests), func(i, j int) { requests[i], requests[j] = requests[j], requests[i] })
			}
			for _, td := range requests {
				require.NoError(t, p.PostTraces(t.Context(), td))
			}
			if c.leaves {
				require.Eventually(t, func() bool { return gauge(t, p, "otelcol_processor_stream_open_streams") == 0 }, 30*time.Second, 100*time.Millisecond)
			}
			var server, stream ptrace.Span
			total := 0
			collector.Spans(p.StopAndReadTraces(t), func(_ ptrace.ResourceSpans, _ ptrace.ScopeSpans, span ptrace.Span) {
				total++
				switch phase(span) {
				case "request":
					server = span
				case "stream":
					stream = span
				}
			})
			require.Equal(t, 4, total, "both halves, the receive span and the headers")
			assert.Equal(t, 150*time.Millisecond, time.Duration(server.EndTimestamp()-server.StartTimestamp()))
			assert.Equal(t, 470*time.Millisecond, time.Duration(stream.EndTimestamp()-stream.StartTimestamp()))
			assert.Equal(t, server.SpanID(), stream.ParentSpanID())
			assertASGISummary(t, stream)
		})
	}
}

// TestFoldedStreamsLeaveAtSIGTERM: the parent never comes, and what was accepted is not lost when the collector is told to end.
func TestFoldedStreamsLeaveAtSIGTERM(t *testing.T) {
	p := collector.Start(t, foldingConfig("wait: 1h"))
	for _, td := range oneByOne(asgiCase(t)) {
		if span := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0); !span.ParentSpanID().IsEmpty() {
			require.NoError(t, p.PostTraces(t.Context(), td))
		}
	}
	var names []string
	collector.Spans(p.StopAndReadTraces(t), func(_ ptrace.ResourceSpans, _ ptrace.ScopeSpans, span ptrace.Span) {
		names = append(names, span.Name())
		if phase(span) == "stream" {
			assertASGISummary(t, span)
			v, _ := span.Attributes().Get("stream.outcome")
			assert.Equal(t, "incomplete", v.Str())
			assert.Equal(t, "a84a6d361daf9ade", span.ParentSpanID().String())
		}
	})
	assert.ElementsMatch(t, []string{"GET /chat http receive", "GET /chat http send", "GET /chat stream"}, names)
}

func gauge(t *testing.T, p *collector.Process, name string) float64 {
	t.Helper()
	samples, err := p.Telemetry(t.Context())
	require.NoError(t, err)
	for _, s := range samples {
		if s.Name == name {
			return s.Value
		}
	}
	return 0
}

// rss is the memory of the process, which for a Go program is up to twice what it holds.
func rss(t *testing.T, p *collector.Process) int64 { return statusBytes(t, p, "VmRSS:") }

// TestFoldMemory opens 100,000 streams of 50 chunks each and compares the memory of the process with that of an idle one. What the runtime
// has not collected yet is counted in, so that the collector runs as the documentation says: with GOMEMLIMIT set.
func TestFoldMemory(t *testing.T) {
	const streams, chunks, perRequest, chunksPerRequest = 100_000, 50, 200, 10
	p := collector.StartWith(t, collector.Options{
		Configs: []string{collector.Base, foldingConfig("wait: 1h, max_streams: 100000")},
		Env:     map[string]string{"GOMEMLIMIT": "160MiB"},
	})
	send := func(from, round int) {
		td := ptrace.NewTraces()
		rs := td.ResourceSpans().AppendEmpty()
		rs.Resource().Attributes().PutStr("service.name", "shop-assistant")
		ss := rs.ScopeSpans().AppendEmpty()
		ss.Scope().SetName("opentelemetry.instrumentation.fastapi")
		for i := from; i < from+perRequest; i++ {
			at := uint64(1_764_000_000_000_000_000) + uint64(round)*500_000_000
			for c := range chunksPerRequest {
				at += 20_000_000 + uint64(rand.IntN(20_000_000))
				span := ss.Spans().AppendEmpty()
				trace, id, parent := pcommon.TraceID{1}, pcommon.SpanID{}, pcommon.SpanID{7}
				binary.BigEndian.PutUint64(trace[8:], uint64(i+1))
				binary.BigEndian.PutUint64(id[:], uint64(i*chunks+round*chunksPerRequest+c+1))
				span.SetTraceID(trace)
				span.SetSpanID(id)
				span.SetParentSpanID(parent)
				span.SetName("GET /chat http send")
				span.SetKind(ptrace.SpanKindInternal)
				span.SetStartTimestamp(pcommon.Timestamp(at))
				span.SetEndTimestamp(pcommon.Timestamp(at + 50_000))
				span.Attributes().PutStr("asgi.event.type", "http.response.body")
			}
		}
		require.NoError(t, p.SendTraces(t.Context(), td))
	}
	for from := range 10 { // connections, buffers and code in use
		send(streams+from*perRequest, 0)
	}
	idle := rss(t, p)
	for from := 0; from < streams; from += perRequest {
		for round := range chunks / chunksPerRequest {
			send(from, round)
		}
	}
	open, held, now := gauge(t, p, "otelcol_processor_stream_open_streams"), gauge(t, p, "otelcol_processor_stream_open_memory"), rss(t, p)
	assert.InDelta(t, streams, open, 0)
	t.Logf("idle %d MiB, with %.0f open streams %d MiB; the collector estimates %.0f MiB", idle>>20, open, now>>20, held/(1<<20))
	assert.Less(t, now-idle, int64(150<<20))
	require.NoError(t, p.Kill()) // what it would write at the end is not the matter
}
