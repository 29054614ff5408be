# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""The OpenAI instrumentations of OpenTelemetry itself: openai-v2, and its successor genai-openai."""

import app

if app.INSTRUMENTATION.startswith("otel-openai-v2"):
    from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor
else:
    from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor
call = app.openai_responses if app.INSTRUMENTATION.endswith("-responses") else app.openai_chat
app.run(call, app.warm_telemetry(call, OpenAIInstrumentor().instrument))
