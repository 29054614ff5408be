# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""The OpenAI instrumentations of OpenTelemetry itself: openai-v2, and its successor genai-openai."""

import app

providers = app.telemetry()
if app.INSTRUMENTATION.startswith("otel-openai-v2"):
    from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor
else:
    from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor
OpenAIInstrumentor().instrument()
app.run(app.openai_responses if app.INSTRUMENTATION.endswith("-responses") else app.openai_chat, providers)
