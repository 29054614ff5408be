// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package dialect

import "go.opentelemetry.io/collector/pdata/ptrace"

// Role is what an attribute, an event or a span means for a streamed response.
type Role string

// The roles that the configuration offers. The first six are roles of attributes, the next three of events, RoleChunk also of spans.
const (
	RoleStreamFlag       Role = "stream_flag"
	RoleTimeToFirstChunk Role = "time_to_first_chunk"
	RoleFirstChunkTime   Role = "first_chunk_time"
	RoleOutputTokens     Role = "output_tokens"
	RoleFinishReason     Role = "finish_reason"
	RoleChunkCount       Role = "chunk_count"

	RoleFirstChunk Role = "first_chunk"
	RoleChunk      Role = "chunk"
	RoleEnd        Role = "end"
)

// Roles of the built-in table only.
const (
	rolePhase        Role = "phase"         // the span is already one of ours
	roleJSONFlag     Role = "json_flag"     // a JSON text whose member "stream" is the flag
	roleJSONTokens   Role = "json_tokens"   // a JSON text with the output tokens
	roleContentType  Role = "content_type"  // the content type of the response
	roleMeanGap      Role = "mean_gap"      // a mean gap that the instrumentation worked out
	roleErrorType    Role = "error_type"    // error.type
	roleGRPCStatus   Role = "grpc_status"   // a gRPC status, as code or as name
	roleEnvoyFlags   Role = "envoy_flags"   // Envoy's response flags
	roleHTTP         Role = "http"          // marks an HTTP span
	roleRPC          Role = "rpc"           // marks an RPC span
	roleGenAI        Role = "genai"         // marks a GenAI span, nothing else
	roleOperation    Role = "operation"     // gen_ai.operation.name
	roleChunkEcho    Role = "chunk_echo"    // a second event for a chunk that has one already
	roleCancel       Role = "cancel"        // an event that says the call was cancelled
	roleChoice       Role = "choice"        // an event that may carry the finish reason
	roleDetails      Role = "details"       // an event whose output messages may carry the finish reason
	roleProtocol     Role = "protocol"      // an event that marks a protocol's first byte
	roleStreamingRPC Role = "streaming_rpc" // a span name that only streaming calls have
)

// Unit is the unit of a number.
type Unit string

// Units of a time to first chunk. UnitAuto takes the largest unit under which the value fits into the span.
const (
	UnitAuto         Unit = ""
	UnitSeconds      Unit = "s"
	UnitMilliseconds Unit = "ms"
	UnitMicroseconds Unit = "us"
	UnitNanoseconds  Unit = "ns"
)

// strength says what evidence is worth.
type strength uint8

const (
	// strengthMarker decides that a span streams.
	strengthMarker strength = iota
	// strengthMargin decides only when the instant lies clearly before the end: the instrumentation writes it for plain calls too, at
	// their end.
	strengthMargin
	// strengthAmbiguous gives an instant only together with a flag or when the user trusts the key: servers write it for every call.
	strengthAmbiguous
)

// direction says which messages of a two-way conversation an event stands for.
type direction uint8

const (
	directionNone direction = iota // always the response
	directionIn                    // received by this side
	directionOut                   // sent by this side
	directionAttr                  // told by the attribute message.type or rpc.message.type
)

// AttributeRow is one row for an attribute key.
type AttributeRow struct {
	Role Role
	// Unit is the unit of a time to first chunk.
	Unit Unit

	dialect  string
	strength strength
	// intMillis: an integer under this key is milliseconds whatever the unit says, since two instrumentations share it.
	intMillis bool
}

// EventRow is one row for an event name, or for every name with that prefix.
type EventRow struct {
	Role   Role
	Prefix bool

	dialect   string
	direction direction
	// bodyWrite: the event is one write of a response body, which a plain response has too; min_spread applies.
	bodyWrite bool
	// micros: old releases wrote microseconds where nanoseconds belong.
	micros bool
	// bytesKey names the event attribute that holds the size of the chunk.
	bytesKeys []string
}

// SpanRow is one row for a span name, or for every name with that suffix.
type SpanRow struct {
	Role   Role
	Suffix bool
	// Where lists attributes that the span must have with these values.
	Where map[string]string
	// Scopes lists instrumentation scopes (prefixes) that the span must come from; empty means any.
	Scopes []string

	dialect   string
	bodyWrite bool
	// parent is the kind of the span that the chunk spans lie below; unspecified stands for any.
	parent ptrace.SpanKind
}

// Vocabulary is the user's part of the table.
type Vocabulary struct {
	Attributes map[string]AttributeRow
	Events     map[string]EventRow
	Spans      map[string]SpanRow
	// Trust lists keys whose instants count although the key alone does not tell a streamed call from a plain one.
	Trust []string
	// Disable lists keys of the built-in table to leave out.
	Disable []string
}

type attrEntry struct {
	key string
	row AttributeRow
}

type eventEntry struct {
	key string
	row EventRow
}

type spanEntry struct {
	key string
	row SpanRow
}

// phaseKey is the attribute of the spans that were processed already.
const phaseKey = "stream.phase"

// builtinAttributes is in order of precedence within a role: the first valid row of a role wins.
var builtinAttributes = []attrEntry{
	{phaseKey, AttributeRow{Role: rolePhase}},

	// Flags. Several are written as false too, or as text.
	{"gen_ai.request.stream", AttributeRow{Role: RoleStreamFlag, dialect: "otel-genai"}},
	{"gen_ai.is_streaming", AttributeRow{Role: RoleStreamFlag, dialect: "openllmetry"}},
	{"llm.is_streaming", AttributeRow{Role: RoleStreamFlag, dialect: "openllmetry"}},
	{"gen_ai.request.is_stream", AttributeRow{Role: RoleStreamFlag, dialect: "openlit"}},
	{"gen_ai.response.streaming", AttributeRow{Role: RoleStreamFlag, dialect: "sentry"}},
	{"langsmith.request.streaming", AttributeRow{Role: RoleStreamFlag, dialect: "langsmith"}},
	{"spring.ai.chat.client.stream", AttributeRow{Role: RoleStreamFlag, dialect: "spring-ai"}},

	// Time to first chunk. Conventions first, then the SDKs' own keys, then absolute times, then keys that plain calls have too.
	{"gen_ai.response.time_to_first_chunk", AttributeRow{Role: RoleTimeToFirstChunk, Unit: UnitSeconds, dialect: "otel-genai"}},
	{"gen_ai.client.operation.time_to_first_chunk", AttributeRow{Role: RoleTimeToFirstChunk, Unit: UnitSeconds, dialect: "otel-genai"}},
	{"gen_ai.client.inference.time_to_first_chunk", AttributeRow{Role: RoleTimeToFirstChunk, Unit: UnitSeconds, dialect: "otel-genai"}},
	{"gen_ai.response.time_to_first_token", AttributeRow{Role: RoleTimeToFirstChunk, Unit: UnitSeconds, dialect: "sentry"}},
	{"ai.response.msToFirstChunk", AttributeRow{Role: RoleTimeToFirstChunk, Unit: UnitMilliseconds, dialect: "vercel-ai-sdk"}},
	{"ai.stream.msToFirstChunk", AttributeRow{Role: RoleTimeToFirstChunk, Unit: UnitMilliseconds, dialect: "vercel-ai-sdk"}},
	{"ttft_ms", AttributeRow{Role: RoleTimeToFirstChunk, Unit: UnitMilliseconds, dialect: "claude-code"}},
	{"copilot_chat.time_to_first_token", AttributeRow{Role: RoleTimeToFirstChunk, Unit: UnitMilliseconds, dialect: "copilot-chat"}},
	{"time_to_first_token_ms", AttributeRow{Role: RoleTimeToFirstChunk, Unit: UnitMilliseconds, dialect: "openinference"}},
	{"lk.response.ttft", AttributeRow{Role: RoleTimeToFirstChunk, Unit: UnitSeconds, dialect: "livekit"}},
	{"lk.response.ttfb", AttributeRow{Role: RoleTimeToFirstChunk, Unit: UnitSeconds, dialect: "livekit"}},
	{"metrics.ttfb", AttributeRow{Role: RoleTimeToFirstChunk, Unit: UnitSeconds, dialect: "pipecat"}},
	{"langfuse.observation.completion_start_time", AttributeRow{Role: RoleFirstChunkTime, dialect: "langfuse"}},
	{"mastra.completion_start_time", AttributeRow{Role: RoleFirstChunkTime, dialect: "mastra", strength: strengthMargin}},
	// OpenLIT writes seconds as a double, also for plain calls (where it is the duration); Strands writes whole milliseconds.
	{"gen_ai.server.time_to_first_token", AttributeRow{Role: RoleTimeToFirstChunk, dialect: "openlit", strength: strengthAmbiguous, intMillis: true}},
	{"gen_ai.latency.time_to_first_token", AttributeRow{Role: RoleTimeToFirstChunk, Unit: UnitSeconds, dialect: "inference-server", strength: strengthAmbiguous}},

	// The flag inside a JSON text, and the protocol's own word.
	{"llm.invocation_parameters", AttributeRow{Role: roleJSONFlag, dialect: "openinference"}},
	{"langfuse.observation.model.parameters", AttributeRow{Role: roleJSONFlag, dialect: "langfuse"}},
	{"http.response.header.content-type", AttributeRow{Role: roleContentType, dialect: "http"}},
	{"http.response.header.content_type", AttributeRow{Role: roleContentType, dialect: "http"}},

	// Output tokens. A tokenizer's guess hides among them, so the key goes out as stream.token.source.
	{"gen_ai.usage.output_tokens", AttributeRow{Role: RoleOutputTokens}},
	{"gen_ai.usage.completion_tokens", AttributeRow{Role: RoleOutputTokens}},
	{"llm.token_count.completion", AttributeRow{Role: RoleOutputTokens}},
	{"ai.usage.outputTokens", AttributeRow{Role: RoleOutputTokens}},
	{"ai.usage.completionTokens", AttributeRow{Role: RoleOutputTokens}},
	{"llm.usage.completion_tokens", AttributeRow{Role: RoleOutputTokens}},
	{"output_tokens", AttributeRow{Role: RoleOutputTokens}},
	{"langfuse.observation.usage_details", AttributeRow{Role: roleJSONTokens}},
	{"mlflow.chat.tokenUsage", AttributeRow{Role: roleJSONTokens}},

	{"gen_ai.response.finish_reasons", AttributeRow{Role: RoleFinishReason}},
	{"gen_ai.response.finish_reason", AttributeRow{Role: RoleFinishReason}},
	{"gen_ai.response.stop_reason", AttributeRow{Role: RoleFinishReason}},
	{"ai.response.finishReason", AttributeRow{Role: RoleFinishReason}},
	{"llm.finish_reason", AttributeRow{Role: RoleFinishReason}},
	{"llm.response.finish_reason", AttributeRow{Role: RoleFinishReason}},
	{"llm.response.stop_reason", AttributeRow{Role: RoleFinishReason}},
	{"gen_ai.completion.0.finish_reason", AttributeRow{Role: RoleFinishReason}},
	{"llm.completions.0.finish_reason", AttributeRow{Role: RoleFinishReason}},
	{"anthropic.message.stop_reason", AttributeRow{Role: RoleFinishReason}},
	{"stop_reason", AttributeRow{Role: RoleFinishReason}},
	{"langfuse.observation.metadata.finish_reason", AttributeRow{Role: RoleFinishReason}},

	{"chunk_count", AttributeRow{Role: RoleChunkCount}},

	// What the AI SDK and OpenLIT report is the mean gap between chunks, whatever the name says.
	{"gen_ai.client.operation.time_per_output_chunk", AttributeRow{Role: roleMeanGap}},
	{"gen_ai.client.inference.time_per_output_chunk", AttributeRow{Role: roleMeanGap}},
	{"gen_ai.server.time_per_output_token", AttributeRow{Role: roleMeanGap}},

	{"error.type", AttributeRow{Role: roleErrorType}},
	{"rpc.grpc.status_code", AttributeRow{Role: roleGRPCStatus}},
	{"rpc.response.status_code", AttributeRow{Role: roleGRPCStatus}},
	{"response_flags", AttributeRow{Role: roleEnvoyFlags}},
	{"http.request.method", AttributeRow{Role: roleHTTP}},
	{"http.method", AttributeRow{Role: roleHTTP}},
	{"rpc.system", AttributeRow{Role: roleRPC}},
	{"rpc.system.name", AttributeRow{Role: roleRPC}},
	{"gen_ai.operation.name", AttributeRow{Role: roleOperation}},
	{"gen_ai.provider.name", AttributeRow{Role: roleGenAI}},
	{"gen_ai.system", AttributeRow{Role: roleGenAI}},
	{"gen_ai.request.model", AttributeRow{Role: roleGenAI}},
	{"gen_ai.response.model", AttributeRow{Role: roleGenAI}},
	{"llm.model_name", AttributeRow{Role: roleGenAI}},
	{"ai.model.id", AttributeRow{Role: roleGenAI}},
}

var (
	grpcSizes = []string{"message.uncompressed_size", "rpc.message.uncompressed_size", "message.compressed_size", "rpc.message.compressed_size"}
	coreSizes = []string{"message-size", "message-size-compressed"}
)

var builtinEvents = []eventEntry{
	{"First Token Stream Event", EventRow{Role: RoleFirstChunk, dialect: "openinference"}},
	{"ai.stream.firstChunk", EventRow{Role: RoleFirstChunk, dialect: "vercel-ai-sdk"}},

	{"gen_ai.content.completion.chunk", EventRow{Role: RoleChunk, dialect: "openllmetry"}},
	{"llm.content.completion.chunk", EventRow{Role: RoleChunk, dialect: "openllmetry"}},
	{"mlflow.chunk.item.", EventRow{Role: RoleChunk, Prefix: true, dialect: "mlflow", micros: true}},
	{"message", EventRow{Role: RoleChunk, dialect: "grpc", direction: directionAttr, bytesKeys: grpcSizes}},
	{"Inbound message", EventRow{Role: RoleChunk, dialect: "grpc", direction: directionIn, bytesKeys: coreSizes}},
	{"Outbound message", EventRow{Role: RoleChunk, dialect: "grpc", direction: directionOut, bytesKeys: coreSizes}},
	// grpc-java writes a second event for the same message when it was compressed.
	{"Inbound compressed message", EventRow{Role: roleChunkEcho, dialect: "grpc", direction: directionIn}},
	{"write", EventRow{Role: RoleChunk, dialect: "otelhttp", bodyWrite: true, bytesKeys: []string{"http.wrote_bytes"}}},

	{"ai.stream.finish", EventRow{Role: RoleEnd, dialect: "vercel-ai-sdk"}},
	{"Response Completed Event", EventRow{Role: RoleEnd, dialect: "envoy-ai-gateway"}},
	{"last_downstream_tx_byte_sent", EventRow{Role: RoleEnd, dialect: "envoy"}},
	{"responseEnd", EventRow{Role: RoleEnd, dialect: "browser"}},

	{"span.cancelled", EventRow{Role: roleCancel, dialect: "openinference"}},
	{"gen_ai.choice", EventRow{Role: roleChoice}},
	{"gen_ai.client.inference.operation.details", EventRow{Role: roleDetails}},

	// Every response has a first byte, so these say where, never whether.
	{"http.receive.start", EventRow{Role: roleProtocol, dialect: "otelhttptrace"}},
	{"first_upstream_rx_byte_received", EventRow{Role: roleProtocol, dialect: "envoy"}},
	{"responseStart", EventRow{Role: roleProtocol, dialect: "browser"}},
}

var codexScopes = []string{"codex"}

var builtinSpans = []spanEntry{
	{"ai.streamText.doStream", SpanRow{Role: roleStreamingRPC, dialect: "vercel-ai-sdk"}},
	{"ai.streamObject.doStream", SpanRow{Role: roleStreamingRPC, dialect: "vercel-ai-sdk"}},
	{"generate_stream", SpanRow{Role: roleStreamingRPC, dialect: "tgi"}},
	{"claude_code.llm_request", SpanRow{Role: roleStreamingRPC, dialect: "claude-code"}},

	{" http send", SpanRow{Role: RoleChunk, Suffix: true, Where: map[string]string{"asgi.event.type": "http.response.body"}, dialect: "asgi", bodyWrite: true, parent: ptrace.SpanKindServer}},
	{"decode_loop", SpanRow{Role: RoleChunk, Scopes: []string{"sglang"}, dialect: "sglang"}},
	// Codex names its tracer after its service (codex_cli_rs, codex-app-server, …) and its spans after the event: ordinary words that mean
	// nothing elsewhere.
	{"text_delta", SpanRow{Role: RoleChunk, Scopes: codexScopes, dialect: "codex"}},
	{"reasoning_content_delta", SpanRow{Role: RoleChunk, Scopes: codexScopes, dialect: "codex"}},
	{"reasoning_summary_delta", SpanRow{Role: RoleChunk, Scopes: codexScopes, dialect: "codex"}},
	{"output_text_delta", SpanRow{Role: RoleChunk, Scopes: codexScopes, dialect: "codex"}},
	{"tool_call_input_delta", SpanRow{Role: RoleChunk, Scopes: codexScopes, dialect: "codex"}},
}
