# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""OpenLLMetry (Traceloop)."""

import app

if app.INSTRUMENTATION == "openllmetry-anthropic":
    from opentelemetry.instrumentation.anthropic import AnthropicInstrumentor as Instrumentor

    call = app.anthropic_messages
elif app.INSTRUMENTATION == "openllmetry-cohere":
    from opentelemetry.instrumentation.cohere import CohereInstrumentor as Instrumentor

    call = app.cohere_chat
elif app.INSTRUMENTATION == "openllmetry-mistral":
    from opentelemetry.instrumentation.mistralai import MistralAiInstrumentor as Instrumentor

    call = app.mistral_chat
else:
    from opentelemetry.instrumentation.openai import OpenAIInstrumentor as Instrumentor

    call = app.openai_responses if app.INSTRUMENTATION.endswith("-responses") else app.openai_chat
app.run(call, app.warm_telemetry(call, Instrumentor().instrument))
