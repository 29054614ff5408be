// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package spanlaws

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Generate returns a batch whose spans mix what the instrumentations write with what nobody should: any evidence beside any other, at
// times inside, at the edge of and outside the span, values of the wrong type, parents that are missing or their own child.
func Generate(r *rand.Rand) ptrace.Traces {
	g := generator{r}
	td := ptrace.NewTraces()
	for range 1 + r.IntN(2) {
		rs := td.ResourceSpans().AppendEmpty()
		rs.SetSchemaUrl(pick(r, "", "https://opentelemetry.io/schemas/1.41.0"))
		if lang := pick(r, "", "go", "python", "java", "nodejs"); lang != "" {
			rs.Resource().Attributes().PutStr("telemetry.sdk.language", lang)
		}
		for range 1 + r.IntN(2) {
			ss := rs.ScopeSpans().AppendEmpty()
			ss.SetSchemaUrl(pick(r, "", "https://example.com/s"))
			ss.Scope().SetName(pick(r, "", "ai", "@openlit/instrumentation-openai", "com.anthropic.sdk.python", "opentelemetry.instrumentation.openai.v1", "my-app"))
			ss.Scope().Attributes().PutStr("a", "b")
			for range r.IntN(6) {
				g.span(ss.Spans().AppendEmpty())
			}
		}
	}
	return td
}

type generator struct{ *rand.Rand }

func pick[T any](r *rand.Rand, options ...T) T { return options[r.IntN(len(options))] }

// base is an instant of 2026.
const base = 1_780_000_000_000_000_000

func (g generator) span(s ptrace.Span) {
	s.SetTraceID(traceID(g.IntN(3)))
	s.SetSpanID(spanID(g.IntN(12)))
	s.SetParentSpanID(spanID(g.IntN(12)))
	s.SetName(pick(g.Rand, "chat gpt", "GET /", "ai.streamText.doStream", "ai.streamText.doStream f", "generate_stream", "Recv.x", ""))
	s.SetKind(ptrace.SpanKind(g.IntN(6)))
	s.SetFlags(g.Uint32N(0x400))
	s.TraceState().FromRaw(pick(g.Rand, "", "ot=th:8", "x=y"))
	s.SetDroppedAttributesCount(pick[uint32](g.Rand, 0, 0, 7))
	s.SetDroppedEventsCount(pick[uint32](g.Rand, 0, 0, 0, 5))
	s.SetDroppedLinksCount(pick[uint32](g.Rand, 0, 0, 2))
	start := int64(base) + g.Int64N(1e9)
	length := pick(g.Rand, 0, 1, 1_000, 1_000_000, 500_000_000, 5_000_000_000, g.Int64N(20e9))
	end := start + length
	switch g.IntN(40) {
	case 0:
		end = start - 1 - g.Int64N(1e6)
	case 1:
		start, end = 0, 0
	case 2:
		start, end = math.MaxInt64-10, math.MaxInt64
	}
	s.SetStartTimestamp(pcommon.Timestamp(start))
	s.SetEndTimestamp(pcommon.Timestamp(end))
	if g.IntN(40) == 0 {
		s.SetEndTimestamp(math.MaxUint64)
	}
	s.Status().SetCode(ptrace.StatusCode(g.IntN(3)))
	s.Status().SetMessage(pick(g.Rand, "", "boom", "context canceled"))
	for range g.IntN(3) {
		l := s.Links().AppendEmpty()
		l.SetTraceID(traceID(g.IntN(3)))
		l.SetSpanID(spanID(g.IntN(12)))
	}
	g.attributes(s, length)
	g.events(s, start, length)
}

func (g generator) attributes(s ptrace.Span, length int64) {
	m := s.Attributes()
	m.PutStr("http.route", "/chat")
	seconds := float64(g.instant(length)) / 1e9
	for range g.IntN(5) {
		switch g.IntN(16) {
		case 0:
			m.PutBool(pick(g.Rand, "gen_ai.request.stream", "llm.is_streaming"), g.IntN(3) > 0)
		case 1:
			m.PutStr(pick(g.Rand, "gen_ai.is_streaming", "gen_ai.request.is_stream"), pick(g.Rand, "True", "false", "yes", ""))
		case 2:
			m.PutDouble(pick(g.Rand, "gen_ai.response.time_to_first_chunk", "gen_ai.client.operation.time_to_first_chunk"), seconds)
		case 3:
			m.PutDouble("ai.response.msToFirstChunk", seconds*1e3)
		case 4:
			m.PutStr("ttft_ms", fmt.Sprint(seconds*1e3))
		case 5:
			m.PutDouble("gen_ai.latency.time_to_first_token", seconds)
		case 6:
			m.PutInt("gen_ai.server.time_to_first_token", int64(seconds*1e3))
		case 7:
			m.PutDouble("gen_ai.response.time_to_first_chunk", pick(g.Rand, math.NaN(), math.Inf(1), -1, 1e300, 9e9))
		case 8:
			m.PutEmptySlice("gen_ai.request.stream").AppendEmpty().SetBool(true)
		case 9:
			m.PutStr("error.type", pick(g.Rand, "AbortError", "timeout"))
		case 10:
			m.PutStr("llm.invocation_parameters", pick(g.Rand, `{"stream":true}`, `{"stream":`, `{"stream":"x"}`, `{"stream":false}`))
		case 11:
			m.PutEmptySlice("http.response.header.content-type").AppendEmpty().SetStr("text/event-stream")
		case 12:
			m.PutStr("gen_ai.response.finish_reasons", `["stop"]`)
		case 13:
			m.PutInt("gen_ai.usage.output_tokens", g.Int64N(1000)-1)
		case 14:
			m.PutStr(pick(g.Rand, "k\xff", "gen_ai.request.model"), "\xfe\xff")
		case 15:
			if g.IntN(4) == 0 {
				m.PutStr("stream.phase", pick(g.Rand, "request", "stream", "whole"))
			}
		}
	}
}

func (g generator) events(s ptrace.Span, start, length int64) {
	name := pick(g.Rand, "gen_ai.content.completion.chunk", "mlflow.chunk.item.", "write", "message", "Inbound message", "llm.content.completion.chunk", "log")
	at := start + g.instant(length)
	for i := range g.IntN(pick(g.Rand, 1, 3, 30)) {
		e := s.Events().AppendEmpty()
		e.SetName(name)
		if name == "mlflow.chunk.item." {
			e.SetName(fmt.Sprint(name, i))
		}
		if name == "message" {
			e.Attributes().PutStr("message.type", pick(g.Rand, "SENT", "RECEIVED"))
			e.Attributes().PutInt("message.uncompressed_size", 10)
		}
		e.Attributes().PutInt("i", int64(i))
		switch g.IntN(12) {
		case 0:
			e.SetName(pick(g.Rand, "exception", "First Token Stream Event", "ai.stream.firstChunk", "ai.stream.finish", "responseStart", "span.cancelled"))
		case 1:
			at = start + g.instant(length)
		default:
			at += pick(g.Rand, 0, 1000, length/50, 1_000_000_000)
		}
		e.SetTimestamp(pcommon.Timestamp(max(0, at)))
		if g.IntN(60) == 0 {
			e.SetTimestamp(pick[pcommon.Timestamp](g.Rand, 0, math.MaxUint64, pcommon.Timestamp(at/1000)))
		}
	}
}

// instant is a time after the start of a span: mostly inside, at an edge, or up to and beyond 1 ms outside.
func (g generator) instant(length int64) int64 {
	switch g.IntN(8) {
	case 0:
		return 0
	case 1:
		return length
	case 2:
		return length + g.Int64N(2_000_000)
	case 3:
		return -g.Int64N(2_000_000)
	default:
		return g.Int64N(length + 1)
	}
}

func traceID(n int) pcommon.TraceID {
	var id pcommon.TraceID
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	return id
}

func spanID(n int) pcommon.SpanID {
	var id pcommon.SpanID
	binary.BigEndian.PutUint64(id[:], uint64(n))
	return id
}
