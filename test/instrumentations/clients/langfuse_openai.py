# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""Langfuse's drop-in for the OpenAI SDK. The Langfuse client exports by OTLP to its own server's path."""

import os

import app

app.warm_up(app.openai_chat)

os.environ |= {
    "LANGFUSE_PUBLIC_KEY": "pk-lf-mock",
    "LANGFUSE_SECRET_KEY": "sk-lf-mock",
    "LANGFUSE_HOST": os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"],
    "LANGFUSE_BASE_URL": os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"],
}

from langfuse import get_client  # noqa: E402
from langfuse.openai import AsyncOpenAI, OpenAI  # noqa: E402

make = AsyncOpenAI if app.SCHEDULE.cancel_how == "task" else OpenAI


def flush():
    get_client().flush()
    get_client().shutdown()


app.run(lambda: app.openai_chat(make, name="chat"), flush=flush)
