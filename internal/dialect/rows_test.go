// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package dialect

import (
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"
)

var (
	client, server, internal = kind(ptrace.SpanKindClient), kind(ptrace.SpanKindServer), kind(ptrace.SpanKindInternal)
	stop                     = attr("gen_ai.response.finish_reasons", []any{"stop"})
	tokens100                = attr("gen_ai.usage.output_tokens", 100)
)

const (
	semconvTokens = "gen_ai.usage.output_tokens"
	semconvTTFC   = "gen_ai.response.time_to_first_chunk"
	metricTTFC    = "gen_ai.client.operation.time_to_first_chunk"
	serverTTFT    = "gen_ai.server.time_to_first_token"
	latencyTTFT   = "gen_ai.latency.time_to_first_token"
)

// TestInstrumentations has every instrumentation that is known to leave evidence on its span, as it writes a call, and those that are
// known to leave none. The numbers are those of the survey of instrumentations that the vocabulary follows.
func TestInstrumentations(t *testing.T) {
	message := func(prefix, typ string, id int, at time.Duration) given {
		return eventWith("message", at, map[string]any{prefix + "message.type": typ, prefix + "message.id": id, prefix + "message.uncompressed_size": 8})
	}
	dotnet := func(name, typ string, id int, at time.Duration) given {
		return eventWith(name, at, map[string]any{"name": "message", "message.type": typ, "message.id": id})
	}
	for _, tt := range []struct {
		name string
		span built
		want verdict
	}{
		{
			"1 GenAI convention",
			build(scope("my-app"), attr("gen_ai.request.stream", true), attr(semconvTTFC, 0.4), stop, tokens100),
			verdict{streams: true, first: 400 * ms, source: semconvTTFC, dialect: "otel-genai", outcome: OutcomeCompleted, tokens: 100, from: semconvTokens},
		},
		{
			"1 GenAI convention, no finish reason",
			build(scope("my-app"), attr("gen_ai.request.stream", true), attr(semconvTTFC, 0.4)),
			verdict{streams: true, first: 400 * ms, source: semconvTTFC, dialect: "otel-genai", outcome: OutcomeIncomplete},
		},
		{
			"1 GenAI convention, newer name of the metric as an attribute",
			build(attr("gen_ai.client.inference.time_to_first_chunk", 0.4), stop),
			verdict{streams: true, first: 400 * ms, source: "gen_ai.client.inference.time_to_first_chunk", dialect: "otel-genai", outcome: OutcomeCompleted},
		},
		{
			"1 GenAI convention, plain call",
			build(attr("gen_ai.operation.name", "chat"), stop, tokens100),
			verdict{},
		},
		{
			"2 OTel Python, stream dropped by the caller and collected",
			build(
				scope("opentelemetry.util.genai"), attr("gen_ai.request.stream", true), attr(semconvTTFC, 0.4), attr("error.type", "_OTHER"),
				status(ptrace.StatusCodeError, "abandoned stream"),
			),
			verdict{streams: true, first: 400 * ms, source: semconvTTFC, dialect: "otel-python-genai", outcome: OutcomeCancelled},
		},
		{
			"2 OTel Python, failed in the middle",
			build(
				scope("opentelemetry.instrumentation.openai_v2"), attr("gen_ai.request.stream", true), attr(semconvTTFC, 0.4),
				attr("error.type", "APIError"), status(ptrace.StatusCodeError, "boom"),
			),
			verdict{streams: true, first: 400 * ms, source: semconvTTFC, dialect: "otel-python-genai", outcome: OutcomeError},
		},
		{
			"2b to 4 older OTel Python, JS and Java: no evidence",
			build(scope("@opentelemetry/instrumentation-openai"), stop, tokens100),
			verdict{},
		},
		{
			"5 OpenLLMetry, OpenAI",
			build(
				scope("opentelemetry.instrumentation.openai.v1"), sdk("python"), named("openai.chat"), attr("gen_ai.is_streaming", true),
				event("gen_ai.content.completion.chunk", 300*ms, 400*ms, 500*ms), attr("gen_ai.usage.completion_tokens", 12),
			),
			verdict{
				streams: true, first: 300 * ms, source: "gen_ai.content.completion.chunk", dialect: "openllmetry", outcome: OutcomeUnknown,
				tokens: 12, from: "gen_ai.usage.completion_tokens",
			},
		},
		{
			"5 OpenLLMetry, older names",
			build(scope("opentelemetry.instrumentation.openai.v1"), attr("llm.is_streaming", true), event("llm.content.completion.chunk", 300*ms, 400*ms)),
			verdict{streams: true, first: 300 * ms, source: "llm.content.completion.chunk", dialect: "openllmetry", outcome: OutcomeUnknown},
		},
		{
			"5b OpenLLMetry, Cohere: events and no flag",
			build(scope("opentelemetry.instrumentation.cohere"), event("llm.content.completion.chunk", 300*ms, 400*ms)),
			verdict{streams: true, first: 300 * ms, source: "llm.content.completion.chunk", dialect: "openllmetry", outcome: OutcomeUnknown},
		},
		{
			"5c OpenLLMetry, Ollama and others: a flag",
			build(scope("opentelemetry.instrumentation.ollama"), attr("llm.is_streaming", true)),
			verdict{streams: true, reason: ReasonNoFirstChunk, dialect: "openllmetry", outcome: OutcomeUnknown},
		},
		{
			"5d OpenLLMetry, Anthropic: a flag",
			build(scope("opentelemetry.instrumentation.anthropic"), attr("gen_ai.is_streaming", true), status(ptrace.StatusCodeOk, "")),
			verdict{streams: true, reason: ReasonNoFirstChunk, dialect: "openllmetry", outcome: OutcomeUnknown},
		},
		{
			"6 OpenLLMetry JS: no evidence",
			build(scope("@traceloop/instrumentation-openai"), tokens100),
			verdict{},
		},
		{
			"7 OpenInference, OpenAI",
			build(
				scope("openinference.instrumentation.openai"), internal, named("ChatCompletion"),
				attr("llm.invocation_parameters", `{"model": "gpt", "stream": true}`), event("First Token Stream Event", 350*ms),
				attr("llm.token_count.completion", 86),
			),
			verdict{
				streams: true, first: 350 * ms, source: "First Token Stream Event", dialect: "openinference", outcome: OutcomeUnknown,
				tokens: 86, from: "llm.token_count.completion",
			},
		},
		{
			"7 OpenInference, MistralAI: the event alone",
			build(scope("openinference.instrumentation.mistralai"), internal, event("First Token Stream Event", 350*ms)),
			verdict{streams: true, first: 350 * ms, source: "First Token Stream Event", dialect: "openinference", outcome: OutcomeUnknown},
		},
		{
			"7 OpenInference, LlamaIndex, cancelled",
			build(
				scope("openinference.instrumentation.llama_index"), internal, event("First Token Stream Event", 350*ms),
				eventWith("span.cancelled", 900*ms, map[string]any{"reason": "cancelled by user"}),
			),
			verdict{streams: true, first: 350 * ms, source: "First Token Stream Event", dialect: "openinference", outcome: OutcomeCancelled},
		},
		{
			"7b OpenInference, realtime",
			build(scope("openinference.instrumentation.openai_agents"), attr("time_to_first_token_ms", 350)),
			verdict{streams: true, first: 350 * ms, source: "time_to_first_token_ms", dialect: "openinference", outcome: OutcomeUnknown},
		},
		{
			"7c OpenInference JS: the flag in a JSON text",
			build(scope("@arizeai/openinference-instrumentation-openai"), attr("llm.invocation_parameters", `{"stream":true}`)),
			verdict{streams: true, reason: ReasonNoFirstChunk, dialect: "openinference", outcome: OutcomeUnknown},
		},
		{
			"8 AI SDK 5 and 6",
			build(
				scope("ai"), internal, named("ai.streamText.doStream"), event("ai.stream.firstChunk", 402*ms), event("ai.stream.finish", 1990*ms),
				attr("ai.response.msToFirstChunk", 401.25), attr("ai.response.finishReason", "stop"), attr("ai.usage.completionTokens", 100),
			),
			verdict{
				streams: true, first: 401*ms + 250*time.Microsecond, source: "ai.response.msToFirstChunk", dialect: "vercel-ai-sdk",
				outcome: OutcomeCompleted, tokens: 100, from: "ai.usage.completionTokens",
			},
		},
		{
			"8 AI SDK, streamObject, with the name of a function",
			build(scope("ai"), internal, named("ai.streamObject.doStream my-function"), attr("ai.stream.msToFirstChunk", 250)),
			verdict{streams: true, first: 250 * ms, source: "ai.stream.msToFirstChunk", dialect: "vercel-ai-sdk", outcome: OutcomeIncomplete},
		},
		{
			"8 AI SDK, the root span",
			build(scope("ai"), internal, named("ai.streamText"), attr("ai.response.finishReason", "stop")),
			verdict{},
		},
		{
			"8b AI SDK 7, legacy: the event is stamped at the end",
			build(
				scope("ai"), internal, named("ai.streamText.doStream"), event("ai.stream.firstChunk", 2*time.Second),
				attr("ai.response.msToFirstChunk", 400), event("ai.stream.finish", 2*time.Second),
			),
			verdict{streams: true, first: 400 * ms, source: "ai.response.msToFirstChunk", dialect: "vercel-ai-sdk", outcome: OutcomeCompleted},
		},
		{
			"8b AI SDK 7, legacy, aborted: only the name of the span",
			build(scope("ai"), internal, named("ai.streamText.doStream")),
			verdict{streams: true, reason: ReasonNoFirstChunk, dialect: "vercel-ai-sdk", outcome: OutcomeIncomplete},
		},
		{
			"8c AI SDK 7: names of metrics as attributes",
			build(scope("gen_ai"), attr(metricTTFC, 0.41), attr("gen_ai.client.operation.time_per_output_chunk", 0.08), stop, tokens100),
			verdict{streams: true, first: 410 * ms, source: metricTTFC, dialect: "vercel-ai-sdk", outcome: OutcomeCompleted, tokens: 100, from: semconvTokens},
		},
		{
			"9 Pydantic AI",
			build(scope("pydantic-ai"), attr(metricTTFC, 0.41), stop),
			verdict{streams: true, first: 410 * ms, source: metricTTFC, dialect: "pydantic-ai", outcome: OutcomeCompleted},
		},
		{
			"10 Logfire: the request ends at the headers, the stream is a record of its own",
			build(scope("logfire.openai"), attr("request_data", `{"stream":true}`)),
			verdict{},
		},
		{
			"11 Microsoft.Extensions.AI: the finish reasons are a JSON text",
			build(
				scope("Experimental.Microsoft.Extensions.AI"), sdk("dotnet"), attr("gen_ai.request.stream", true), attr(semconvTTFC, 0.4),
				attr("gen_ai.response.finish_reasons", `["stop"]`),
			),
			verdict{streams: true, first: 400 * ms, source: semconvTTFC, dialect: "microsoft-extensions-ai", outcome: OutcomeCompleted},
		},
		{
			"12 Semantic Kernel: no evidence",
			build(scope("Microsoft.SemanticKernel.Diagnostics"), attr("gen_ai.response.finish_reason", `["stop"]`)),
			verdict{},
		},
		{
			"13 Spring AI: everything is text",
			build(
				scope("org.springframework.boot"), sdk("java"), attr("gen_ai.request.stream", "true"), attr(semconvTokens, "64"),
				attr("gen_ai.response.finish_reasons", `["STOP"]`),
			),
			verdict{streams: true, reason: ReasonNoFirstChunk, dialect: "spring-ai", outcome: OutcomeCompleted, tokens: 64, from: semconvTokens},
		},
		{
			"13 Spring AI, ChatClient",
			build(scope("org.springframework.boot"), attr("spring.ai.chat.client.stream", "true")),
			verdict{streams: true, reason: ReasonNoFirstChunk, dialect: "spring-ai", outcome: OutcomeUnknown},
		},
		{
			"13 Spring AI, ChatClient, plain call",
			build(scope("org.springframework.boot"), attr("spring.ai.chat.client.stream", "false")),
			verdict{},
		},
		{
			"14 Langfuse",
			build(
				scope("langfuse-sdk"), internal, attr("langfuse.observation.completion_start_time", `"`+stamp(640*ms, time.RFC3339Nano, time.UTC)+`"`),
				attr("langfuse.observation.usage_details", `{"input":17,"output":120}`),
			),
			verdict{
				streams: true, first: 640 * ms, source: "langfuse.observation.completion_start_time", dialect: "langfuse", outcome: OutcomeUnknown,
				tokens: 120, from: "langfuse.observation.usage_details",
			},
		},
		{
			"14 Langfuse, the flag in a JSON text",
			build(scope("langfuse-sdk"), internal, attr("langfuse.observation.model.parameters", `{"stream": true}`)),
			verdict{streams: true, reason: ReasonNoFirstChunk, dialect: "langfuse", outcome: OutcomeUnknown},
		},
		{
			"15 LiteLLM",
			build(scope("litellm"), named("litellm_request"), attr("llm.is_streaming", "True"), attr("gen_ai.response.finish_reasons", `["stop"]`)),
			verdict{streams: true, reason: ReasonNoFirstChunk, dialect: "litellm", outcome: OutcomeCompleted},
		},
		{
			"16 vLLM: the same for every call",
			build(scope("vllm.llm_engine"), server, named("llm_request"), attr(latencyTTFT, 0.3)),
			verdict{},
		},
		{
			"17 SGLang with a flag that a proxy added",
			build(scope("sglang"), internal, attr(latencyTTFT, 0.3), attr("gen_ai.request.stream", true)),
			verdict{streams: true, first: 300 * ms, source: latencyTTFT, dialect: "sglang", outcome: OutcomeUnknown},
		},
		{
			"18 TensorRT-LLM: the same for every call",
			build(scope("tensorrt_llm"), server, attr(latencyTTFT, 0.3), attr("gen_ai.latency.e2e", 2.0)),
			verdict{},
		},
		{
			"19 Text Generation Inference",
			build(scope("text-generation-inference.router"), internal, named("generate_stream"), attr("time_per_token", "12.3ms")),
			verdict{streams: true, reason: ReasonNoFirstChunk, dialect: "tgi", outcome: OutcomeUnknown},
		},
		{
			"20 Triton: no evidence",
			build(named("InferRequest"), event("REQUEST_START", 0), event("COMPUTE_START", 10*ms)),
			verdict{},
		},
		{
			"22 MLflow",
			build(
				scope("mlflow.openai"), sdk("python"), internal, event("mlflow.chunk.item.0", 400*ms), event("mlflow.chunk.item.1", 480*ms),
				attr("mlflow.chat.tokenUsage", `{"input_tokens": 17, "output_tokens": 8, "total_tokens": 25}`),
			),
			verdict{
				streams: true, first: 400 * ms, source: "mlflow.chunk.item.0", dialect: "mlflow", outcome: OutcomeUnknown,
				tokens: 8, from: "mlflow.chat.tokenUsage",
			},
		},
		{
			"23 Envoy AI Gateway, OpenInference mode: the event is stamped at the end",
			build(
				scope("envoyproxy/ai-gateway"), internal, named("ChatCompletion"), event("First Token Stream Event", 2*time.Second-200*time.Microsecond),
				event("Response Completed Event", 2*time.Second-100*time.Microsecond),
			),
			verdict{streams: true, reason: ReasonEndStamped, dialect: "envoy-ai-gateway", outcome: OutcomeCompleted},
		},
		{
			"23b Envoy AI Gateway, GenAI mode: no evidence",
			build(scope("envoyproxy/ai-gateway"), stop, tokens100),
			verdict{},
		},
		{
			"24 LangSmith",
			build(scope("langsmith"), attr("langsmith.request.streaming", true)),
			verdict{streams: true, reason: ReasonNoFirstChunk, dialect: "langsmith", outcome: OutcomeUnknown},
		},
		{
			"25 Sentry Python",
			build(scope("sentry"), attr("gen_ai.response.streaming", true), attr("gen_ai.response.time_to_first_token", 0.4), stop),
			verdict{streams: true, first: 400 * ms, source: "gen_ai.response.time_to_first_token", dialect: "sentry", outcome: OutcomeCompleted},
		},
		{
			"25b Sentry JS",
			build(
				scope("@sentry/node"), internal, attr("gen_ai.response.streaming", true), attr("gen_ai.request.stream", true),
				attr("gen_ai.response.finish_reasons", `["stop"]`),
			),
			verdict{streams: true, reason: ReasonNoFirstChunk, dialect: "sentry", outcome: OutcomeCompleted},
		},
		{
			"26 OpenLIT Python: counts from the headers",
			build(scope("openlit.instrumentation.openai"), sdk("python"), attr("gen_ai.request.stream", true), attr(serverTTFT, 0.15), stop),
			verdict{streams: true, reason: ReasonWrongOrigin, dialect: "openlit", outcome: OutcomeCompleted},
		},
		{
			"26b OpenLIT JS: counts from the headers",
			build(scope("@openlit/instrumentation-openai"), attr("gen_ai.request.is_stream", true), attr(serverTTFT, 0.12), stop),
			verdict{streams: true, reason: ReasonWrongOrigin, dialect: "openlit", outcome: OutcomeCompleted},
		},
		{
			"26b OpenLIT Go",
			build(scope("openlit"), attr("gen_ai.request.is_stream", true), attr(serverTTFT, 0.4)),
			verdict{streams: true, first: 400 * ms, source: serverTTFT, dialect: "openlit", outcome: OutcomeIncomplete},
		},
		{
			"27 Strands: whole milliseconds under OpenLIT's key",
			build(scope("strands.telemetry.tracer"), internal, named("chat"), attr(serverTTFT, 400), tokens100),
			verdict{streams: true, first: 400 * ms, source: serverTTFT, dialect: "strands", outcome: OutcomeUnknown, tokens: 100, from: semconvTokens},
		},
		{
			"27 Strands, cancelled: the stop reason is on an event",
			build(
				scope("strands.telemetry.tracer"), internal, named("chat"), attr(serverTTFT, 400),
				eventWith("gen_ai.choice", 900*ms, map[string]any{"finish_reason": "cancelled"}),
			),
			verdict{streams: true, first: 400 * ms, source: serverTTFT, dialect: "strands", outcome: OutcomeCancelled},
		},
		{
			"27 Strands by the newer convention, cancelled: the stop reason is in the messages of the second such event",
			build(
				scope("strands.telemetry.tracer"), internal, named("chat"), attr(serverTTFT, 400),
				eventWith("gen_ai.client.inference.operation.details", 0, map[string]any{"gen_ai.input.messages": `[{"role": "user", "finish_reason": "no"}]`}),
				eventWith("gen_ai.client.inference.operation.details", 900*ms, map[string]any{
					"gen_ai.output.messages": `[{"role": "assistant", "parts": [{"type": "text", "content": "a \"finish_reason\""}], "finish_reason": "cancelled"}]`,
				}),
			),
			verdict{streams: true, first: 400 * ms, source: serverTTFT, dialect: "strands", outcome: OutcomeCancelled},
		},
		{
			"28, 29 Google ADK, Gemini CLI: no evidence",
			build(scope("gcp.vertex.agent"), internal, named("call_llm"), stop, tokens100),
			verdict{},
		},
		{
			"30 Claude Code",
			build(
				scope("com.anthropic.claude_code.tracing"), internal, named("claude_code.llm_request"), attr("ttft_ms", "512"),
				attr("output_tokens", "231"), attr("stop_reason", "end_turn"),
			),
			verdict{streams: true, first: 512 * ms, source: "ttft_ms", dialect: "claude-code", outcome: OutcomeCompleted, tokens: 231, from: "output_tokens"},
		},
		{
			"30 Claude Code without the time: it is sometimes missing",
			build(scope("com.anthropic.claude_code.tracing"), internal, named("claude_code.llm_request")),
			verdict{streams: true, reason: ReasonNoFirstChunk, dialect: "claude-code", outcome: OutcomeUnknown},
		},
		{
			"32 VS Code Copilot Chat",
			build(scope("copilot-chat"), attr("copilot_chat.time_to_first_token", 612), stop),
			verdict{streams: true, first: 612 * ms, source: "copilot_chat.time_to_first_token", dialect: "copilot-chat", outcome: OutcomeCompleted},
		},
		{
			"33 Anthropic SDK",
			build(
				scope("com.anthropic.sdk.typescript"), named("anthropic.messages.create"), attr("gen_ai.request.stream", true), attr(semconvTTFC, 0.4),
				attr("gen_ai.response.finish_reasons", []any{"end_turn"}), status(ptrace.StatusCodeOk, ""),
			),
			verdict{streams: true, first: 400 * ms, source: semconvTTFC, dialect: "anthropic-sdk", outcome: OutcomeCompleted},
		},
		{
			"33 Anthropic SDK, closed early",
			build(scope("com.anthropic.sdk.python"), attr("gen_ai.request.stream", true), attr(semconvTTFC, 0.4)),
			verdict{streams: true, first: 400 * ms, source: semconvTTFC, dialect: "anthropic-sdk", outcome: OutcomeCancelled},
		},
		{
			"34 LiveKit, language model",
			build(scope("livekit-agents"), internal, attr("lk.response.ttft", 0.35)),
			verdict{streams: true, first: 350 * ms, source: "lk.response.ttft", dialect: "livekit", outcome: OutcomeUnknown},
		},
		{
			"34 LiveKit, speech",
			build(scope("livekit-agents"), internal, attr("lk.response.ttfb", 0.21)),
			verdict{streams: true, first: 210 * ms, source: "lk.response.ttfb", dialect: "livekit", outcome: OutcomeUnknown},
		},
		{
			"35 Pipecat",
			build(scope("pipecat"), internal, named("llm"), attr("metrics.ttfb", 0.35)),
			verdict{streams: true, first: 350 * ms, source: "metrics.ttfb", dialect: "pipecat", outcome: OutcomeUnknown},
		},
		{
			"Mastra",
			build(scope("@mastra/otel-exporter"), attr("mastra.completion_start_time", stamp(400*ms, "2006-01-02T15:04:05.000Z07:00", time.UTC)), stop),
			verdict{streams: true, first: 400 * ms, source: "mastra.completion_start_time", dialect: "mastra", outcome: OutcomeCompleted},
		},
		{
			"40 otelhttp, server with write events",
			build(
				scope("go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"), sdk("go"), server, named("POST /chat"), attr("http.request.method", "POST"),
				eventWith("read", 1*ms, map[string]any{"http.read_bytes": 120}),
				eventWith("write", 300*ms, map[string]any{"http.wrote_bytes": 60}),
				eventWith("write", 900*ms, map[string]any{"http.wrote_bytes": 60}),
			),
			verdict{streams: true, first: 300 * ms, source: "write", dialect: "otelhttp", outcome: OutcomeCompleted},
		},
		{
			"41, 42 otelhttp client and its httptrace children: no evidence on the span",
			build(scope("go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"), sdk("go"), attr("http.request.method", "POST")),
			verdict{},
		},
		{
			"42b otelhttptrace without sub-spans, a streaming content type",
			build(
				scope("my-client"), sdk("go"), attr("http.request.method", "POST"), attr("http.response.header.content-type", []any{"text/event-stream"}),
				event("http.receive.start", 250*ms), event("http.receive.done", 1990*ms),
			),
			verdict{streams: true, first: 250 * ms, source: "http.receive.start", dialect: "otelhttptrace", outcome: OutcomeCompleted},
		},
		{
			"42b otelhttptrace without sub-spans: every response has a first byte",
			build(attr("http.request.method", "POST"), event("http.receive.start", 250*ms)),
			verdict{},
		},
		{
			"43 otelgrpc up to v0.66, client",
			build(
				scope("go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"), client, attr("rpc.grpc.status_code", 0),
				message("rpc.", "SENT", 1, 1*ms), message("rpc.", "RECEIVED", 1, 40*ms), message("rpc.", "RECEIVED", 2, 140*ms),
			),
			verdict{streams: true, first: 40 * ms, source: "message", dialect: "otelgrpc", outcome: OutcomeCompleted},
		},
		{
			"43 otelgrpc up to v0.66, server",
			build(
				scope("go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"), server, attr("rpc.grpc.status_code", 1),
				message("", "RECEIVED", 1, 1*ms), message("", "SENT", 1, 30*ms), message("", "SENT", 2, 80*ms),
			),
			verdict{streams: true, first: 30 * ms, source: "message", dialect: "otelgrpc", outcome: OutcomeCancelled},
		},
		{
			"43b otelgrpc from v0.67: no evidence",
			build(scope("go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"), attr("rpc.response.status_code", "OK")),
			verdict{},
		},
		{
			"44 grpc-go, attempt",
			build(
				scope("grpc-go"), internal, named("Attempt.pkg.Chat.Stream"), status(ptrace.StatusCodeOk, ""),
				eventWith("Outbound message", 1*ms, map[string]any{"sequence-number": 0, "message-size": 20}),
				eventWith("Inbound message", 50*ms, map[string]any{"sequence-number": 0, "message-size": 8}),
				eventWith("Inbound message", 90*ms, map[string]any{"sequence-number": 1, "message-size": 8}),
			),
			verdict{streams: true, first: 50 * ms, source: "Inbound message", dialect: "grpc-go", outcome: OutcomeUnknown},
		},
		{
			"44 grpc-go, server, known by its name",
			build(
				scope("grpc-go"), internal, named("Recv.pkg.Chat.Stream"),
				eventWith("Inbound message", 1*ms, map[string]any{"sequence-number": 0}),
				eventWith("Outbound message", 50*ms, map[string]any{"sequence-number": 0}),
				eventWith("Outbound message", 90*ms, map[string]any{"sequence-number": 1}),
			),
			verdict{streams: true, first: 50 * ms, source: "Outbound message", dialect: "grpc-go", outcome: OutcomeUnknown},
		},
		{
			"44b grpc-java: a unary call whose response was compressed has two events and is no stream",
			build(
				scope("grpc-java"), named("Attempt.pkg.Chat.Get"), event("Outbound message", 1*ms),
				eventWith("Inbound compressed message", 50*ms, map[string]any{"sequence-number": 0}),
				eventWith("Inbound message", 51*ms, map[string]any{"sequence-number": 0}),
			),
			verdict{},
		},
		{
			"45 OTel Java agent, stream",
			build(
				scope("io.opentelemetry.grpc-1.6"), sdk("java"), client, attr("rpc.grpc.status_code", 0),
				message("", "SENT", 1, 1*ms), message("", "RECEIVED", 1, 40*ms), message("", "RECEIVED", 2, 140*ms),
			),
			verdict{streams: true, first: 40 * ms, source: "message", dialect: "otel-java-grpc", outcome: OutcomeCompleted},
		},
		{
			"45 OTel Java agent, unary: the events are there too",
			build(scope("io.opentelemetry.grpc-1.6"), sdk("java"), client, message("", "SENT", 1, 1*ms), message("", "RECEIVED", 1, 40*ms)),
			verdict{},
		},
		{
			"46, 47 OTel Python and JS gRPC: no evidence",
			build(scope("@opentelemetry/instrumentation-grpc"), attr("rpc.grpc.status_code", 0)),
			verdict{},
		},
		{
			"48 .NET GrpcCore: events named after the type of the message",
			build(
				scope("OpenTelemetry.Instrumentation.GrpcCore"), sdk("dotnet"), client, attr("rpc.grpc.status_code", 0),
				dotnet("ChatRequest", "SENT", 1, 1*ms), dotnet("ChatReply", "RECEIVED", 1, 60*ms), dotnet("ChatReply", "RECEIVED", 2, 90*ms),
			),
			verdict{streams: true, first: 60 * ms, source: "ChatReply", dialect: "dotnet-grpc-core", outcome: OutcomeCompleted},
		},
		{
			"50 browser fetch: every response starts",
			build(scope("@opentelemetry/instrumentation-fetch"), attr("http.method", "POST"), event("responseStart", 257*ms), event("responseEnd", 1990*ms)),
			verdict{},
		},
		{
			"50 browser fetch with a streaming content type",
			build(
				scope("@opentelemetry/instrumentation-fetch"), attr("http.method", "POST"), attr("http.response.header.content-type", "text/event-stream; charset=utf-8"),
				event("responseEnd", 1990*ms), event("responseStart", 257*ms),
			),
			verdict{streams: true, first: 257 * ms, source: "responseStart", dialect: "otel-js", outcome: OutcomeCompleted},
		},
		{
			"52 Node undici with the header captured",
			build(scope("@opentelemetry/instrumentation-undici"), attr("http.request.method", "POST"), attr("http.response.header.content-type", []any{"application/x-ndjson"})),
			verdict{streams: true, reason: ReasonNoFirstChunk, dialect: "otel-js", outcome: OutcomeCompleted},
		},
		{
			"54, 55 Python httpx, .NET HttpClient: the span ends at the headers",
			build(scope("opentelemetry.instrumentation.httpx"), attr("http.request.method", "POST")),
			verdict{},
		},
		{
			"56 Envoy, verbose Zipkin spans: where, not whether",
			build(scope("zipkin"), server, event("first_upstream_rx_byte_received", 200*ms), event("last_downstream_tx_byte_sent", 1990*ms), attr("response_flags", "-")),
			verdict{},
		},
		{
			"56 Envoy, verbose Zipkin spans, streaming content type, client gone",
			build(
				server, attr("http.method", "POST"), attr("http.response.header.content-type", "text/event-stream"),
				event("first_upstream_rx_byte_received", 200*ms), attr("response_flags", "UT,DC"),
			),
			verdict{streams: true, first: 200 * ms, source: "first_upstream_rx_byte_received", dialect: "envoy", outcome: OutcomeCancelled},
		},
		{
			"58 any HTTP with captured headers",
			build(attr("http.request.method", "GET"), attr("http.response.header.content-type", []any{"application/stream+json"})),
			verdict{streams: true, reason: ReasonNoFirstChunk, dialect: "http", outcome: OutcomeCompleted},
		},
		{
			"58 an ordinary content type",
			build(attr("http.request.method", "GET"), attr("http.response.header.content-type", []any{"application/json"})),
			verdict{},
		},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.want.check(t, Vocabulary{}, tt.span) })
	}
}
