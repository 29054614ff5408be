# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""OpenInference (Arize)."""

import app

if app.INSTRUMENTATION == "openinference-anthropic":
    from openinference.instrumentation.anthropic import AnthropicInstrumentor as Instrumentor

    call = app.anthropic_messages
elif app.INSTRUMENTATION == "openinference-mistral":
    from openinference.instrumentation.mistralai import MistralAIInstrumentor as Instrumentor

    call = app.mistral_chat
else:
    from openinference.instrumentation.openai import OpenAIInstrumentor as Instrumentor

    call = app.openai_responses if app.INSTRUMENTATION.endswith("-responses") else app.openai_chat
app.run(call, app.warm_telemetry(call, Instrumentor().instrument))
