# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""LiteLLM with its OpenTelemetry callback."""

import app
import litellm


def arguments():
    body = app.chat_body(model="openai/gpt-4o-mini", api_base=app.PROVIDER + "/v1", api_key="sk-mock", num_retries=app.RETRIES)
    if app.SCHEDULE.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def call():
    result = litellm.completion(**arguments())
    if not app.SCHEDULE.stream:
        return result.id
    return app.read(result, app.chat_text, close=lambda: result.completion_stream.close())


async def acall():
    return await app.aread(await litellm.acompletion(**arguments()), app.chat_text)


entry = acall if app.SCHEDULE.cancel_how == "task" else call
app.warm_up(entry)
providers = app.telemetry()
litellm.callbacks = ["otel"]
app.run(entry, providers)
