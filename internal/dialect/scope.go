// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package dialect

import "strings"

// scopeRow says what is known of every span of an instrumentation scope.
type scopeRow struct {
	prefix  string
	dialect string
	// exact: the whole name must match, for names that are ordinary words.
	exact bool
	// genAIOnly: the prefix is shared with instrumentations of plain HTTP; it names the dialect of GenAI spans only.
	genAIOnly bool
	// finish: the instrumentation writes a finish reason on every completed stream, so a stream without one is incomplete.
	finish bool
	// wrongOrigin: its times to first chunk count from the response headers; they are never an instant.
	wrongOrigin bool
	// unsetIsCancelled: status unset and no finish reason means that the caller closed the stream early.
	unsetIsCancelled bool
}

// scopes is searched from the top: longer prefixes stand before the shorter ones that they start with.
var scopes = []scopeRow{
	{prefix: "opentelemetry.instrumentation.openai_v2", dialect: "otel-python-genai", finish: true},
	{prefix: "opentelemetry.util.genai", dialect: "otel-python-genai", finish: true},
	{prefix: "opentelemetry.instrumentation.genai", dialect: "otel-python-genai", finish: true},
	{prefix: "opentelemetry.instrumentation.google_genai", dialect: "otel-python-genai", finish: true},
	{prefix: "opentelemetry.instrumentation.asgi", dialect: "asgi"},
	{prefix: "opentelemetry.instrumentation.fastapi", dialect: "asgi"},
	{prefix: "opentelemetry.instrumentation.starlette", dialect: "asgi"},
	{prefix: "opentelemetry.instrumentation.grpc", dialect: "otel-python-grpc"},
	{prefix: "opentelemetry.instrumentation.httpx", dialect: "otel-python-http"},
	{prefix: "opentelemetry.instrumentation.requests", dialect: "otel-python-http"},
	{prefix: "opentelemetry.instrumentation.", dialect: "openllmetry", genAIOnly: true},
	{prefix: "@traceloop/", dialect: "openllmetry"},
	{prefix: "openinference.instrumentation.", dialect: "openinference"},
	{prefix: "@arizeai/openinference", dialect: "openinference"},
	{prefix: "@opentelemetry/instrumentation-openai", dialect: "otel-js-openai", finish: true},
	{prefix: "@opentelemetry/instrumentation-", dialect: "otel-js"},
	{prefix: "@elastic/opentelemetry-instrumentation-openai", dialect: "elastic-openai", finish: true},
	{prefix: "ai", exact: true, dialect: "vercel-ai-sdk", finish: true},
	{prefix: "gen_ai", exact: true, dialect: "vercel-ai-sdk", finish: true},
	{prefix: "pydantic-ai", dialect: "pydantic-ai", finish: true},
	{prefix: "logfire", dialect: "logfire"},
	{prefix: "Experimental.Microsoft.Extensions.AI", dialect: "microsoft-extensions-ai", finish: true},
	{prefix: "Microsoft.SemanticKernel", dialect: "semantic-kernel"},
	{prefix: "org.springframework", dialect: "spring-ai"},
	{prefix: "langfuse-sdk", dialect: "langfuse"},
	{prefix: "litellm", dialect: "litellm", finish: true},
	{prefix: "vllm", dialect: "vllm"},
	{prefix: "sglang", dialect: "sglang"},
	{prefix: "tensorrt_llm", dialect: "tensorrt-llm"},
	{prefix: "mlflow", dialect: "mlflow"},
	{prefix: "envoyproxy/ai-gateway", dialect: "envoy-ai-gateway"},
	{prefix: "langsmith", dialect: "langsmith"},
	{prefix: "@sentry/", dialect: "sentry", finish: true},
	{prefix: "@openlit/", dialect: "openlit", finish: true, wrongOrigin: true},
	// Python's counts from the headers too when it wraps an SDK (seen in captures of 2.54).
	{prefix: "openlit.instrumentation.", dialect: "openlit", finish: true, wrongOrigin: true},
	{prefix: "openlit", dialect: "openlit", finish: true},
	{prefix: "strands", dialect: "strands"},
	{prefix: "gcp.vertex.agent", dialect: "google-adk"},
	{prefix: "com.anthropic.sdk.", dialect: "anthropic-sdk", unsetIsCancelled: true},
	{prefix: "com.anthropic.claude_code", dialect: "claude-code"},
	{prefix: "com.anthropic.", dialect: "anthropic"},
	{prefix: "livekit", dialect: "livekit"},
	{prefix: "pipecat", dialect: "pipecat"},
	{prefix: "@mastra/", dialect: "mastra", finish: true},
	{prefix: "codex", dialect: "codex"},
	{prefix: "go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp", dialect: "otelhttp"},
	{prefix: "go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc", dialect: "otelgrpc"},
	{prefix: "grpc-go", dialect: "grpc-go"},
	{prefix: "grpc-java", dialect: "grpc-java"},
	{prefix: "io.opentelemetry.grpc", dialect: "otel-java-grpc"},
	{prefix: "OpenTelemetry.Instrumentation.GrpcCore", dialect: "dotnet-grpc-core"},
}

// conventionDialects are the dialects given by a key alone whose writers follow the GenAI convention, finish reasons included.
var conventionDialects = map[string]bool{"otel-genai": true, "openlit": true, "vercel-ai-sdk": true, "sentry": true, "mastra": true}

func lookupScope(name string) *scopeRow {
	for i := range scopes {
		s := &scopes[i]
		if name == s.prefix || (!s.exact && strings.HasPrefix(name, s.prefix)) {
			return s
		}
	}
	return nil
}

// survivors says which span events an SDK keeps when there are more than its limit.
type survivors uint8

const (
	survivorsUnknown survivors = iota
	survivorsNewest
	survivorsOldest
)

var sdkSurvivors = map[string]survivors{
	"go": survivorsNewest, "python": survivorsNewest, "nodejs": survivorsNewest, "webjs": survivorsNewest,
	"java": survivorsOldest, "rust": survivorsOldest, "dotnet": survivorsOldest,
}
