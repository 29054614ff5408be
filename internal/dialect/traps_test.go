// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package dialect

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// TestTraps has what is known to lead a reader of these spans astray.
func TestTraps(t *testing.T) {
	const chunk = "llm.content.completion.chunk"
	flag := func(v any) given { return attr("gen_ai.request.stream", v) }
	split := func(first time.Duration, source, dialect string) verdict {
		return verdict{streams: true, first: first, source: source, dialect: dialect, outcome: OutcomeUnknown}
	}
	genAI := func(w verdict) verdict {
		w.outcome = OutcomeIncomplete
		return w
	}
	none := verdict{}
	east := time.FixedZone("", 5*3600+1800)
	for _, tt := range []struct {
		name string
		span built
		want verdict
	}{
		// The same key in two units.
		{"a double under OpenLIT's key is seconds", build(flag(true), attr(serverTTFT, 0.4)), genAI(split(400*ms, serverTTFT, "openlit"))},
		{"a double that does not fit as seconds is milliseconds", build(flag(true), attr(serverTTFT, 400.0)), genAI(split(400*ms, serverTTFT, "openlit"))},
		{"an integer is milliseconds", build(attr(serverTTFT, 1)), genAI(split(1*ms, serverTTFT, "openlit"))},
		{"a known unit stays, though the value would fit in another", build(flag(true), attr(semconvTTFC, 400.0)), verdict{streams: true, reason: ReasonOutOfSpan, dialect: "otel-genai", outcome: OutcomeIncomplete}},
		{"Copilot's attribute is milliseconds, whatever its metric is", build(attr("copilot_chat.time_to_first_token", 0.4)), split(400*time.Microsecond, "copilot_chat.time_to_first_token", "copilot-chat")},

		// Text.
		{"true as text", build(attr("llm.is_streaming", "True"), attr(semconvTTFC, "0.4")), genAI(split(400*ms, semconvTTFC, "otel-genai"))},
		{"a number as text", build(attr("ttft_ms", " 512 ")), split(512*ms, "ttft_ms", "claude-code")},
		{"a duration as Rust writes it", build(attr("ttft_ms", "12.5ms")), split(12500*time.Microsecond, "ttft_ms", "claude-code")},
		{"a duration in microseconds as Rust writes it", build(attr("ttft_ms", "850µs")), split(850*time.Microsecond, "ttft_ms", "claude-code")},

		// Absolute times.
		{"ISO time in JSON quotes", build(attr("langfuse.observation.completion_start_time", `"`+stamp(400*ms, "2006-01-02T15:04:05.000000Z07:00", time.UTC)+`"`)), split(400*ms, "langfuse.observation.completion_start_time", "langfuse")},
		{"ISO time without quotes", build(attr("langfuse.observation.completion_start_time", stamp(400*ms, time.RFC3339Nano, time.UTC))), split(400*ms, "langfuse.observation.completion_start_time", "langfuse")},
		{"ISO time with an offset", build(attr("langfuse.observation.completion_start_time", `"`+stamp(400*ms, time.RFC3339Nano, east)+`"`)), split(400*ms, "langfuse.observation.completion_start_time", "langfuse")},
		{"ISO time without a zone is UTC", build(attr("langfuse.observation.completion_start_time", stamp(400*ms, "2006-01-02T15:04:05.999999", time.UTC))), split(400*ms, "langfuse.observation.completion_start_time", "langfuse")},
		{"whole milliseconds that lie before the start by rounding", build(
			func(b built) { b.SetStartTimestamp(testStart + 400_900) },
			attr("langfuse.observation.completion_start_time", stamp(0, time.RFC3339Nano, time.UTC)),
		), split(0, "langfuse.observation.completion_start_time", "langfuse")},

		// Event stamps that lie.
		{"old MLflow wrote microseconds as nanoseconds", build(scope("mlflow"), func(b built) {
			for _, at := range []time.Duration{400 * ms, 500 * ms} {
				e := b.add("mlflow.chunk.item.0", 0)
				e.SetTimestamp((testStart + pcommon.Timestamp(at)) / 1000)
			}
		}), split(400*ms, "mlflow.chunk.item.0", "mlflow")},
		{"microseconds of another instrumentation are not repaired", build(scope("x"), func(b built) {
			for range 2 {
				b.add(chunk, 0).SetTimestamp(testStart / 1000)
			}
		}), verdict{streams: true, reason: ReasonOutOfSpan, dialect: "openllmetry", outcome: OutcomeUnknown}},
		{"the value on the event beats its stamp", build(scope("ai"), eventWith("ai.stream.firstChunk", 2*time.Second, map[string]any{"ai.response.msToFirstChunk": 400})), genAI(split(400*ms, "ai.response.msToFirstChunk", "vercel-ai-sdk"))},
		{"a marker 1 ms before the end was stamped there", build(event("First Token Stream Event", 2*time.Second-1*ms)), verdict{streams: true, reason: ReasonEndStamped, dialect: "openinference", outcome: OutcomeUnknown}},
		{"a marker 2 ms before the end of 2 s was too: 0.1 %", build(event("First Token Stream Event", 2*time.Second-2*ms)), verdict{streams: true, reason: ReasonEndStamped, dialect: "openinference", outcome: OutcomeUnknown}},
		{"a marker just before that", build(event("First Token Stream Event", 2*time.Second-2*ms-1)), split(2*time.Second-2*ms-1, "First Token Stream Event", "openinference")},
		{"of a short span 1 ms counts", build(lasting(100*ms), event("First Token Stream Event", 99*ms)), verdict{streams: true, reason: ReasonEndStamped, dialect: "openinference", outcome: OutcomeUnknown}},
		{"of a short span, just before that", build(lasting(100*ms), event("First Token Stream Event", 99*ms-1)), split(99*ms-1, "First Token Stream Event", "openinference")},
		{"an end-stamped marker with chunks to go by", build(scope("x"), event("First Token Stream Event", 2*time.Second), event(chunk, 300*ms, 400*ms)), split(300*ms, chunk, "openllmetry")},
		{"of two markers the earlier counts", build(event("First Token Stream Event", 500*ms, 300*ms)), split(300*ms, "First Token Stream Event", "openinference")},

		// A time to first token on calls that do not stream.
		{"ambiguous key alone", build(attr(serverTTFT, 0.4)), none},
		{"ambiguous key with the flag", build(flag(true), attr(latencyTTFT, 0.4)), split(400*ms, latencyTTFT, "inference-server")},
		{"ambiguous key with the flag in a JSON text", build(attr("llm.invocation_parameters", `{"stream":true}`), attr(latencyTTFT, 0.4)), split(400*ms, latencyTTFT, "inference-server")},
		{"ambiguous key with the flag false", build(flag(false), attr(latencyTTFT, 0.4)), none},
		{"ambiguous key beside chunks that contradict the flag", build(flag(false), attr(latencyTTFT, 0.2), event(chunk, 300*ms, 400*ms)), split(300*ms, chunk, "openllmetry")},
		{"ambiguous key with a streaming content type", build(attr("http.response.header.content-type", "text/event-stream"), attr(latencyTTFT, 0.4)), verdict{streams: true, reason: ReasonNoFirstChunk, dialect: "inference-server", outcome: OutcomeUnknown}},
		{"margin key: 100 ms before the end", build(lasting(1*time.Second), attr("mastra.completion_start_time", stamp(900*ms, time.RFC3339Nano, time.UTC))), genAI(split(900*ms, "mastra.completion_start_time", "mastra"))},
		{"margin key: just less", build(lasting(1*time.Second), attr("mastra.completion_start_time", stamp(900*ms+1, time.RFC3339Nano, time.UTC))), none},
		{"margin key: 5 % of 10 s before the end", build(lasting(10*time.Second), attr("mastra.completion_start_time", stamp(9500*ms, time.RFC3339Nano, time.UTC))), genAI(split(9500*ms, "mastra.completion_start_time", "mastra"))},
		{"margin key: 4 % of 10 s", build(lasting(10*time.Second), attr("mastra.completion_start_time", stamp(9600*ms, time.RFC3339Nano, time.UTC))), none},
		{"margin key near the end, with the flag", build(flag(true), attr("mastra.completion_start_time", stamp(1990*ms, time.RFC3339Nano, time.UTC))), genAI(split(1990*ms, "mastra.completion_start_time", "mastra"))},
		{"OpenLIT JS counts from the headers, flag or not", build(scope("@openlit/instrumentation-openai"), flag(true), attr(semconvTTFC, 0.4)), verdict{streams: true, reason: ReasonWrongOrigin, dialect: "openlit", outcome: OutcomeIncomplete}},
		{"OpenLIT JS without a flag", build(scope("@openlit/instrumentation-openai"), attr(semconvTTFC, 0.4)), none},

		// Flags that are false.
		{"false", build(flag(false), attr(semconvTTFC, 0.4)), none},
		{"false as text", build(attr("gen_ai.is_streaming", "FALSE"), event("First Token Stream Event", 300*ms)), none},
		{"false with one chunk", build(flag(false), event(chunk, 300*ms)), none},
		{"false with two chunks that contradict it", build(flag(false), event(chunk, 300*ms, 400*ms)), split(300*ms, chunk, "openllmetry")},
		{"false inside JSON says nothing", build(attr("llm.invocation_parameters", `{"stream":false}`), event("First Token Stream Event", 300*ms)), split(300*ms, "First Token Stream Event", "openinference")},
		{"a text that is no flag", build(flag("sometimes")), none},
		{"the better key wins", build(flag(false), attr("llm.is_streaming", true)), none},

		// The flag inside a JSON text and the content type.
		{"JSON with blanks", build(attr("llm.invocation_parameters", "{ \"stream\" :\ttrue }")), verdict{streams: true, reason: ReasonNoFirstChunk, dialect: "openinference", outcome: OutcomeUnknown}},
		{"JSON that nests the word", build(attr("llm.invocation_parameters", `{"options":{"stream":true}}`)), none},
		{"JSON that is broken", build(attr("llm.invocation_parameters", `{"stream":true`)), none},
		{"JSON of more than a megabyte", build(attr("llm.invocation_parameters", `{"stream":true,"x":"`+strings.Repeat("x", 1<<20)+`"}`)), none},
		{"content type as text", build(scope("x"), attr("http.response.header.content-type", "Text/Event-Stream;charset=utf-8")), verdict{streams: true, reason: ReasonNoFirstChunk, dialect: "http", outcome: OutcomeUnknown}},
		{"content type in a slice", build(scope("x"), attr("http.response.header.content-type", []any{"application/json", "application/x-ndjson"})), verdict{streams: true, reason: ReasonNoFirstChunk, dialect: "http", outcome: OutcomeUnknown}},
		{"content type as a number", build(attr("http.response.header.content-type", 5)), none},

		// The limit of 128 events. Go, Python and JS keep the newest, Java, Rust and .NET the oldest.
		{"Go", build(scope("x"), sdk("go"), dropped(9), event(chunk, 900*ms, 950*ms)), verdict{streams: true, reason: ReasonFirstDropped, dialect: "openllmetry", outcome: OutcomeUnknown}},
		{"Python", build(scope("x"), sdk("python"), dropped(9), event(chunk, 900*ms, 950*ms)), verdict{streams: true, reason: ReasonFirstDropped, dialect: "openllmetry", outcome: OutcomeUnknown}},
		{"Node", build(scope("x"), sdk("nodejs"), dropped(9), event(chunk, 900*ms, 950*ms)), verdict{streams: true, reason: ReasonFirstDropped, dialect: "openllmetry", outcome: OutcomeUnknown}},
		{"browser", build(scope("x"), sdk("webjs"), dropped(9), event(chunk, 900*ms, 950*ms)), verdict{streams: true, reason: ReasonFirstDropped, dialect: "openllmetry", outcome: OutcomeUnknown}},
		{"Java", build(scope("x"), sdk("java"), dropped(9), event(chunk, 300*ms, 400*ms)), split(300*ms, chunk, "openllmetry")},
		{"Rust", build(scope("x"), sdk("rust"), dropped(9), event(chunk, 300*ms, 400*ms)), split(300*ms, chunk, "openllmetry")},
		{".NET", build(scope("x"), sdk("dotnet"), dropped(9), event(chunk, 300*ms, 400*ms)), split(300*ms, chunk, "openllmetry")},
		{"an SDK that is not known", build(scope("x"), dropped(9), event(chunk, 900*ms, 950*ms)), verdict{streams: true, reason: ReasonFirstDropped, dialect: "openllmetry", outcome: OutcomeUnknown}},
		{"Go with a value to go by", build(scope("x"), sdk("go"), dropped(9), attr(semconvTTFC, 0.3), event(chunk, 900*ms, 950*ms)), split(300*ms, semconvTTFC, "openllmetry")},

		// Body writes.
		{"a template in three pieces", build(server, event("write", 300*ms, 310*ms, 399*ms)), none},
		{"spread over exactly the minimum", build(scope("x"), server, event("write", 300*ms, 310*ms, 400*ms)), split(300*ms, "write", "otelhttp")},
		{"one write", build(server, event("write", 300*ms)), none},

		// gRPC: the direction of the response.
		{"a client that streams its request", build(client, event("Outbound message", 1*ms, 2*ms, 3*ms), event("Inbound message", 50*ms)), none},
		{"both directions", build(scope("x"), client, event("Outbound message", 1*ms, 70*ms), event("Inbound message", 50*ms, 90*ms)), split(50*ms, "Inbound message", "grpc")},
		{"an event called message that is none", build(client, event("message", 1*ms, 2*ms)), none},
		{"a log called message", build(client, eventWith("message", 1*ms, map[string]any{"message.type": "USER"}), eventWith("message", 2*ms, map[string]any{"message.type": "USER"})), none},
		{"compressed messages count once", build(
			scope("x"), client,
			event("Inbound compressed message", 50*ms), event("Inbound message", 51*ms), event("Inbound compressed message", 90*ms), event("Inbound message", 91*ms),
		), split(51*ms, "Inbound message", "grpc")},

		// Order.
		{"chunks out of order", build(scope("x"), event(chunk, 500*ms, 300*ms, 400*ms)), split(300*ms, chunk, "openllmetry")},
		{"a network event appended late", build(
			attr("http.method", "GET"), attr("http.response.header.content-type", "text/event-stream"), event("my log", 1500*ms), event("responseStart", 250*ms),
		), verdict{streams: true, first: 250 * ms, source: "responseStart", dialect: "browser", outcome: OutcomeCompleted}},

		// Precedence of first chunks.
		{"a convention's duration before a marker", build(attr(semconvTTFC, 0.3), event("First Token Stream Event", 310*ms)), genAI(split(300*ms, semconvTTFC, "otel-genai"))},
		{"a duration before an absolute time", build(
			attr("ttft_ms", 300), attr("langfuse.observation.completion_start_time", stamp(310*ms, time.RFC3339Nano, time.UTC)),
		), split(300*ms, "ttft_ms", "claude-code")},
		{"the first valid one wins", build(attr(semconvTTFC, 9.0), attr("ai.response.msToFirstChunk", 300)), genAI(split(300*ms, "ai.response.msToFirstChunk", "vercel-ai-sdk"))},
		{"a marker before the chunks", build(scope("x"), event("First Token Stream Event", 310*ms), event(chunk, 300*ms, 400*ms)), split(310*ms, "First Token Stream Event", "openllmetry")},
		{"the chunks before the protocol", build(scope("x"), event("http.receive.start", 200*ms), event(chunk, 300*ms, 400*ms)), split(300*ms, chunk, "openllmetry")},
		{"the first byte at the end is no first byte", build(attr("http.response.header.content-type", "text/event-stream"), event("responseStart", 2*time.Second)), verdict{streams: true, reason: ReasonNoFirstChunk, dialect: "browser", outcome: OutcomeUnknown}},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.want.check(t, Vocabulary{}, tt.span) })
	}
}

// TestClamp: up to 1 ms outside the span an instant moves to its edge, whatever it comes from.
func TestClamp(t *testing.T) {
	for _, tt := range []struct {
		at      time.Duration
		first   time.Duration
		clamped bool
		ok      bool
	}{
		{-1*ms - 1, 0, false, false},
		{-1 * ms, 0, true, true},
		{-1, 0, true, true},
		{0, 0, false, true},
		{2 * time.Second, 2 * time.Second, false, true},
		{2*time.Second + 1, 2 * time.Second, true, true},
		{2*time.Second + 1*ms, 2 * time.Second, true, true},
		{2*time.Second + 1*ms + 1, 0, false, false},
	} {
		b := build(attr("langfuse.observation.completion_start_time", stamp(tt.at, time.RFC3339Nano, time.UTC)))
		r := NewReader(table(t, Vocabulary{}), testMinSpread)
		d := r.Decide(evidenceOf(r, b.Span), b.res, b.scope)
		assert.Equal(t, tt.ok, d.FirstKnown, tt.at)
		if tt.ok {
			assert.Equal(t, tt.first, time.Duration(d.First-int64(b.StartTimestamp())), tt.at)
			assert.Equal(t, tt.clamped, d.Clamped, tt.at)
		} else {
			assert.Equal(t, Refused, d.Verdict, tt.at)
			assert.Equal(t, ReasonOutOfSpan, d.Reason, tt.at)
		}
	}
}

// TestOutcome goes down the list of rules, of which the first that applies wins.
func TestOutcome(t *testing.T) {
	failed := status(ptrace.StatusCodeError, "boom")
	reason := func(v any) given { return attr("gen_ai.response.finish_reasons", v) }
	details := func(v any) given {
		return eventWith("gen_ai.client.inference.operation.details", 900*ms, map[string]any{"gen_ai.output.messages": v})
	}
	for _, tt := range []struct {
		name  string
		parts []given
		want  Outcome
	}{
		{"cancel event beats an error", []given{event("span.cancelled", 500*ms), failed}, OutcomeCancelled},
		{"finish reason cancelled", []given{reason([]any{"cancelled"})}, OutcomeCancelled},
		{"finish reason canceled", []given{reason(`["CANCELED"]`)}, OutcomeCancelled},
		{"stop reason aborted", []given{attr("stop_reason", "aborted")}, OutcomeCancelled},
		{"one of two choices cancelled", []given{reason([]any{"stop", "cancelled"})}, OutcomeCancelled},
		{"gRPC 1", []given{attr("rpc.grpc.status_code", 1), failed}, OutcomeCancelled},
		{"gRPC by name", []given{attr("rpc.response.status_code", "CANCELLED")}, OutcomeCancelled},
		{"Envoy DC", []given{attr("response_flags", "DC")}, OutcomeCancelled},
		{"Envoy flag that only begins so", []given{attr("response_flags", "DCX"), attr("http.method", "GET")}, OutcomeCompleted},
		{"AbortError", []given{attr("error.type", "AbortError"), failed}, OutcomeCancelled},
		{"CancelledError of a module", []given{attr("error.type", "asyncio.exceptions.CancelledError"), failed}, OutcomeCancelled},
		{"context canceled as a type", []given{attr("error.type", "context canceled")}, OutcomeCancelled},
		{"context canceled as a message", []given{status(ptrace.StatusCodeError, "rpc error: context canceled")}, OutcomeCancelled},
		{"abandoned stream", []given{status(ptrace.StatusCodeError, "abandoned stream")}, OutcomeCancelled},
		{"status", []given{failed, reason([]any{"stop"})}, OutcomeError},
		{"error.type", []given{attr("error.type", "timeout")}, OutcomeError},
		{"error.type that is no text", []given{attr("error.type", 500)}, OutcomeError},
		{"finish reason error", []given{reason([]any{"error"})}, OutcomeError},
		{"finish reason", []given{reason([]any{"length"})}, OutcomeCompleted},
		{"finish reason as a word", []given{reason("stop")}, OutcomeCompleted},
		{"empty finish reasons", []given{reason([]any{""})}, OutcomeIncomplete},
		{"no finish reason in JSON", []given{reason(`[null]`)}, OutcomeIncomplete},
		{"finish reason in the output messages", []given{details(`[{"role": "assistant", "finish_reason": "end_turn"}]`)}, OutcomeCompleted},
		{"output messages without a finish reason", []given{details(`[{"role": "assistant", "finish_reason": ""}, {"role": "tool", "finish_reason": null}]`)}, OutcomeIncomplete},
		{"output messages that are no JSON", []given{details(`[{"finish_reason": "end_turn"`)}, OutcomeIncomplete},
		{"output messages that are no list", []given{details(`{"finish_reason": "end_turn"}`)}, OutcomeIncomplete},
		{"output messages that are no text", []given{details(true)}, OutcomeIncomplete},
		{"end event", []given{event("ai.stream.finish", 500*ms)}, OutcomeCompleted},
		{"gRPC 0", []given{attr("rpc.grpc.status_code", 0)}, OutcomeCompleted},
		{"gRPC 0 as text", []given{attr("rpc.grpc.status_code", "0")}, OutcomeCompleted},
		{"HTTP without an error", []given{attr("http.request.method", "POST")}, OutcomeCompleted},
		{"a convention's span without a finish reason", nil, OutcomeIncomplete},
		{"an instrumentation that writes none", []given{scope("opentelemetry.instrumentation.openai.v1")}, OutcomeUnknown},
		{"status OK says nothing of the stream", []given{scope("opentelemetry.instrumentation.openai.v1"), status(ptrace.StatusCodeOk, "")}, OutcomeUnknown},
		{"Anthropic SDK, status unset", []given{scope("com.anthropic.sdk.go")}, OutcomeCancelled},
		{"Anthropic SDK, status OK", []given{scope("com.anthropic.sdk.go"), status(ptrace.StatusCodeOk, "")}, OutcomeUnknown},
		{"Anthropic SDK, finished", []given{scope("com.anthropic.sdk.go"), reason([]any{"end_turn"})}, OutcomeCompleted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := build(append([]given{attr("gen_ai.request.stream", true), attr(semconvTTFC, 0.4)}, tt.parts...)...)
			r := NewReader(table(t, Vocabulary{}), testMinSpread)
			ev := evidenceOf(r, b.Span)
			d := r.Decide(ev, b.res, b.scope)
			require.Equal(t, Streaming, d.Verdict)
			assert.Equal(t, tt.want, r.Detail(ev, &d).Outcome)
		})
	}
}

// TestChunks: what the chunk records of a span add up to.
func TestChunks(t *testing.T) {
	sized := func(at time.Duration, size any) given {
		return eventWith("Inbound message", at, map[string]any{"message-size": size})
	}
	for _, tt := range []struct {
		name      string
		span      built
		seen      int64
		instants  []time.Duration
		classes   []EventClass
		bytes     int64
		known     bool
		missing   int64
		truncated bool
		newest    bool
	}{
		{
			"sizes, an echo and an event of another kind",
			build(sdk("java"), sized(50*ms, 8), event("Inbound compressed message", 51*ms), event("log", 60*ms), sized(90*ms, "9")),
			2,
			[]time.Duration{50 * ms, 90 * ms},
			[]EventClass{EventChunk, EventEcho, EventOther, EventChunk},
			17, true, 0, false, false,
		},
		{
			"a size is missing", build(sized(50*ms, 8), event("Inbound message", 90*ms)),
			2,
			[]time.Duration{50 * ms, 90 * ms},
			[]EventClass{EventChunk, EventChunk},
			8, false, 0, false, false,
		},
		{
			"a negative size", build(sized(50*ms, 8), sized(90*ms, -5)),
			2,
			[]time.Duration{50 * ms, 90 * ms},
			[]EventClass{EventChunk, EventChunk},
			8, false, 0, false, false,
		},
		{
			"ties are kept", build(sdk("go"), event("write", 50*ms, 50*ms, 300*ms)),
			3,
			[]time.Duration{50 * ms, 50 * ms, 300 * ms},
			[]EventClass{EventChunk, EventChunk, EventChunk},
			0, false, 0, false, true,
		},
		{
			"an instant outside the span cannot be right", build(event("llm.content.completion.chunk", 50*ms, 3*time.Second, 90*ms)),
			3,
			[]time.Duration{50 * ms, 90 * ms},
			[]EventClass{EventChunk, EventChunk, EventChunk},
			0, false, 1, false, false,
		},
		{
			"dropped events beside nothing but chunks were chunks", build(sdk("python"), dropped(296), event("llm.content.completion.chunk", 50*ms, 90*ms)),
			2,
			[]time.Duration{50 * ms, 90 * ms},
			[]EventClass{EventChunk, EventChunk},
			0, false, 296, false, true,
		},
		{
			"dropped events beside echoes may have been either", build(sdk("java"), dropped(296), event("Inbound compressed message", 50*ms), event("Inbound message", 51*ms), event("Inbound message", 90*ms)),
			2,
			[]time.Duration{51 * ms, 90 * ms},
			[]EventClass{EventEcho, EventChunk, EventChunk},
			0, false, 0, true, false,
		},
		{
			"dropped events beside others may have been anything", build(sdk("java"), dropped(296), event("llm.content.completion.chunk", 50*ms, 90*ms), event("log", 95*ms)),
			2,
			[]time.Duration{50 * ms, 90 * ms},
			[]EventClass{EventChunk, EventChunk, EventOther},
			0, false, 0, true, false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := NewReader(table(t, Vocabulary{}), testMinSpread)
			ev := evidenceOf(r, tt.span.Span)
			require.NotNil(t, ev)
			c := &ev.Chunks
			assert.Equal(t, tt.seen, c.Seen)
			var instants []time.Duration
			for _, at := range c.Instants {
				instants = append(instants, time.Duration(at-int64(testStart)))
			}
			assert.Equal(t, tt.instants, instants)
			assert.Equal(t, tt.classes, c.Classes)
			assert.Equal(t, tt.bytes, c.Bytes)
			assert.Equal(t, tt.known, c.BytesKnown)
			missing, truncated, newest := ev.Window(tt.span.res)
			assert.Equal(t, tt.missing, missing)
			assert.Equal(t, tt.truncated, truncated)
			assert.Equal(t, tt.newest, newest)
		})
	}
}

// TestReaderIsReused: what a Reader found on one span stays valid while it reads the next, until Reset.
func TestReaderIsReused(t *testing.T) {
	r := NewReader(table(t, Vocabulary{}), testMinSpread)
	first := build(attr("gen_ai.request.stream", true), attr("error.type", "x"), event("llm.content.completion.chunk", 100*ms, 200*ms), event("span.cancelled", 300*ms))
	kept := evidenceOf(r, first.Span)
	assert.Nil(t, evidenceOf(r, build().Span))
	second := build(event("llm.content.completion.chunk", 700*ms, 900*ms))
	ev := evidenceOf(r, second.Span)
	d := r.Decide(ev, second.res, second.scope)
	assert.Equal(t, 700*ms, time.Duration(d.First-int64(testStart)))
	assert.Equal(t, OutcomeUnknown, r.Detail(ev, &d).Outcome)
	d = r.Decide(kept, first.res, first.scope)
	assert.Equal(t, 100*ms, time.Duration(d.First-int64(testStart)))
	assert.Equal(t, OutcomeCancelled, r.Detail(kept, &d).Outcome)
	r.Reset()
	assert.Nil(t, evidenceOf(r, build().Span))
}

// TestDetail: the numbers besides the instants.
func TestDetail(t *testing.T) {
	read := func(parts ...given) Detail {
		b := build(append([]given{scope("x"), event("llm.content.completion.chunk", 100*ms, 200*ms)}, parts...)...)
		r := NewReader(table(t, Vocabulary{}), testMinSpread)
		ev := evidenceOf(r, b.Span)
		d := r.Decide(ev, b.res, b.scope)
		return r.Detail(ev, &d)
	}
	assert.Equal(t, int64(0), read(attr("gen_ai.usage.output_tokens", 0)).Tokens)
	assert.Equal(t, "gen_ai.usage.output_tokens", read(attr("gen_ai.usage.output_tokens", 0)).TokenSource, "0 is a number that was reported")
	assert.Empty(t, read(attr("gen_ai.usage.output_tokens", -1)).TokenSource)
	assert.Empty(t, read(attr("gen_ai.usage.output_tokens", "many")).TokenSource)
	both := read(attr("llm.usage.completion_tokens", 131), attr("gen_ai.usage.output_tokens", 100))
	assert.Equal(t, int64(100), both.Tokens, "the convention's key comes first, in whatever order they stand")
	assert.Equal(t, int64(25), read(attr("chunk_count", 25)).ChunkCount)
	assert.InDelta(t, 0.08, read(attr("gen_ai.client.operation.time_per_output_chunk", 0.08)).MeanGap, 0)
	assert.Zero(t, read(attr("gen_ai.client.operation.time_per_output_chunk", 0)).MeanGap, "OpenLIT writes 0 when it has none")
	assert.Equal(t, "chat", read(attr("gen_ai.operation.name", "chat")).Operation)
	assert.True(t, read().GenAI, "an llm.* event")
	b := build(server, event("write", 100*ms, 300*ms))
	r := NewReader(table(t, Vocabulary{}), testMinSpread)
	ev := evidenceOf(r, b.Span)
	d := r.Decide(ev, b.res, b.scope)
	assert.False(t, r.Detail(ev, &d).GenAI, "HTTP")
}

// TestProcessed: a span that has a phase is known by it, and nothing else on it counts.
func TestProcessed(t *testing.T) {
	r := NewReader(table(t, Vocabulary{}), testMinSpread)
	for phase, b := range map[string]built{
		"request": build(attr(semconvTTFC, 0.4), attr("stream.phase", "request")),
		"stream":  build(attr("stream.phase", "stream"), lasting(-1)),
		"":        build(attr("stream.phase", 7)),
	} {
		assert.Equal(t, GlanceAttributes, r.Glance(b.Span), "else nobody would look for the phase")
		got, ok := Phase(b.Span)
		assert.True(t, ok)
		assert.Equal(t, phase, got)
	}
	_, ok := Phase(build(attr(semconvTTFC, 0.4)).Span)
	assert.False(t, ok)
}

// TestRefused: the verdicts of spans that are left alone.
func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		name   string
		span   built
		want   Verdict
		reason Reason
	}{
		{"end before start", build(lasting(-1)), Refused, ReasonEndBeforeStart},
		{"no trace", build(func(b built) { b.SetTraceID(pcommon.TraceID{}) }), Refused, ReasonZeroID},
		{"no id", build(func(b built) { b.SetSpanID(pcommon.SpanID{}) }), Refused, ReasonZeroID},
		{"after 2262", build(func(b built) { b.SetEndTimestamp(1 << 63) }), Refused, ReasonTimeOutOfRange},
		{"senseless beside a good flag", build(attr("gen_ai.request.stream", true), lasting(-1)), Refused, ReasonEndBeforeStart},
		{"zero length", build(lasting(0), attr(semconvTTFC, 0.0)), Streaming, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := NewReader(table(t, Vocabulary{}), testMinSpread)
			ev := evidenceOf(r, tt.span.Span)
			require.NotNil(t, ev)
			d := r.Decide(ev, tt.span.res, tt.span.scope)
			assert.Equal(t, tt.want, d.Verdict)
			assert.Equal(t, tt.reason, d.Reason)
		})
	}
}
