// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "strings"

// advice is what a reader can do about an instrumentation; the first whose text is part of a name of the row applies.
type advice struct{ part, text string }

const (
	captureHeader = "Have the HTTP instrumentation record the content type of the response (`http.response.header.content-type`): a streaming type makes the span a stream. " +
		"The first byte is not recorded; the LLM instrumentation's span above it usually has more."
	writeYourself = "Record the first chunk yourself, see the end of this page."
	sdkSpan       = "Anthropic's own SDK writes a span with the time to first chunk as soon as a tracer provider is registered; for other providers record the first chunk yourself, see the end of this page."
)

var adviceWhole = []advice{
	{"openlit", "Its `gen_ai.server.time_to_first_token` counts from the response headers and is no instant. " + writeYourself},
	{"sentry", "The flag is there, a time is not. " + writeYourself},
	{"litellm", "Its time to first token goes to a metric only. " + writeYourself},
	{"openinference", "The flag is inside a JSON text; JavaScript's libraries write no first-token event, Python's do. " + writeYourself},
	{"openllmetry", "This one writes a flag and neither chunk events nor a time. " + writeYourself},
	{"http", "The content type says that it streams; no instrumentation of this client records the first byte of the body."},
	{"undici", "The content type says that it streams; no instrumentation of this client records the first byte of the body."},
	{"sse-relay", "The content type says that it streams; no instrumentation of these clients records the first byte of the body."},
	{"", writeYourself},
}

var adviceNone = []advice{
	{"llamaindex", "The span ends before the stream begins, and its first-token event lies after its end: refused, and counted as `first_chunk_out_of_span`. " +
		"The span of the client library below it is the one to record."},
	{"langsmith", "No span is exported for a completed stream. " + writeYourself},
	{"logfire", "The request's span ends at the headers; the stream is a record of its own at its end, with a duration that does not count from the request. " +
		"`logfire.instrument_openai` together with Pydantic AI, or OTel's own instrumentation, writes a time to first chunk."},
	{"otelgrpc", "Releases from v0.67 on write no message events any more. gRPC's own OpenTelemetry plugin for Go writes them, and is covered."},
	{"python/grpc", "The span covers the stream, its messages leave no trace. " + writeYourself},
	{"node-grpc", "The span covers the stream, its messages leave no trace. " + writeYourself},
	{"otelhttp-noevents", "On a server, switch the events on: `otelhttp.WithMessageEvents(otelhttp.WriteEvents)`. A client's transport records none."},
	{"fastapi-excluded", "The spans of the body's messages are switched off (`exclude_spans`). Leave `send` on and let the processor fold them."},
	{"browser", "`responseStart` is the first byte of the headers, of any response. Add `http.response.header.content-type` in `applyCustomAttributesOnSpan`, " +
		"or trust the event: `vocabulary: {trust: [responseStart]}` on a pipeline of streaming routes."},
	{"httpx", "The span ends at the headers. " + captureHeader},
	{"requests", "The span ends at the headers. " + captureHeader},
	{"aiohttp", captureHeader},
	{"node-http", captureHeader},
	{"undici", captureHeader},
	{"anthropic", sdkSpan},
	{"traceloop", "Traceloop's JavaScript libraries leave no trace of streaming; Python's write an event per chunk. " + writeYourself},
	{"otel-openai", "OTel's newer Python instrumentation (`opentelemetry-instrumentation-genai-openai`) writes the flag and the time. " + writeYourself},
	{"", writeYourself},
}

func advise(r *row, list []advice) string {
	for _, a := range list {
		if strings.Contains(r.instrumentation, a.part) {
			return a.text
		}
	}
	return ""
}

// surveyed is what is known from documentation and source code alone. Each that is covered has a test with a span after that source
// (internal/dialect, TestInstrumentations).
const surveyed = "## Known from source code and documentation only\n\n" +
	"No capture of these is in testdata; the rows are covered by tests with spans written after their sources.\n\n" +
	"| instrumentation | what the processor goes by |\n" +
	"| --- | --- |\n" +
	"| Claude Code | span `claude_code.llm_request`, `ttft_ms` |\n" +
	"| VS Code Copilot Chat | `copilot_chat.time_to_first_token` (ms) |\n" +
	"| Microsoft.Extensions.AI | `gen_ai.request.stream`, `gen_ai.response.time_to_first_chunk` |\n" +
	"| LiveKit Agents | `lk.response.ttft`, `lk.response.ttfb` |\n" +
	"| Pipecat | `metrics.ttfb` |\n" +
	"| OpenInference for OpenAI realtime | `time_to_first_token_ms` |\n" +
	"| Sentry for Python | `gen_ai.response.streaming`, `gen_ai.response.time_to_first_token` |\n" +
	"| grpc-go and grpc-java, their own OpenTelemetry | events `Inbound message`, `Outbound message`; two or more of the response make a stream |\n" +
	"| OpenTelemetry Java agent, gRPC | events `message` with `message.type`; two or more of the response make a stream |\n" +
	"| OpenTelemetry .NET, Grpc.Core | events with `name` = `message` |\n" +
	"| SGLang | child spans `decode_loop`, with `chunk_spans: {enabled: true}`; `gen_ai.latency.time_to_first_token` counts with a flag or under `trust` |\n" +
	"| Codex CLI | child spans `text_delta` and others, with `chunk_spans: {enabled: true}` |\n" +
	"| vLLM, TensorRT-LLM | `gen_ai.latency.time_to_first_token` is on every call, so it counts only with a flag or under `vocabulary: {trust: [gen_ai.latency.time_to_first_token]}` |\n" +
	"| Envoy with verbose Zipkin spans | a streaming content type, then `first_upstream_rx_byte_received`; or that event under `trust` |\n" +
	"| Spring AI | `gen_ai.request.stream` as text; no time: not split |\n" +
	"| LangSmith | `langsmith.request.streaming`; no time: not split |\n" +
	"| Text Generation Inference | span `generate_stream`; no time: not split |\n" +
	"| Envoy AI Gateway, OpenInference mode | its first-token event is stamped at the end of the span and is rejected: not split |\n" +
	"| Semantic Kernel, Google ADK, Gemini CLI, OpenAI for Java, Triton, nginx, Envoy's OTLP tracer, .NET HttpClient | nothing on the span |\n"
