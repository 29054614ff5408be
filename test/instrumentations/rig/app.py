# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""What the client applications share: the SDK's set-up with stock parts, and the usual loops.

Nothing here makes a span. Spans come from the instrumentation library alone.
"""

import asyncio
import dataclasses
import gc
import inspect
import os
import sys
import time

from schedules import SCHEDULES, WARM_UP, WARM_UP_SCENARIO

INSTRUMENTATION = os.environ.get("CAPTURE_INSTRUMENTATION", "")
SCENARIO = os.environ.get("CAPTURE_SCENARIO", "")
PROVIDER = os.environ.get("CAPTURE_PROVIDER", "")
SCHEDULE = SCHEDULES.get(SCENARIO)
RETRIES = 2 if SCENARIO == "retry_ok" else 0
PROMPT = f"Say words. [inst={INSTRUMENTATION} scenario={SCENARIO}]"
# Time for exporters and finalisers between the end of the call and the flush.
_SETTLE_S = 0.4


def _resource():
    from opentelemetry.sdk.resources import Resource

    return Resource.create({"service.name": "capture-" + INSTRUMENTATION, "service.version": "1.0.0", "deployment.environment.name": "capture"})


def telemetry():
    """Traces and metrics as most applications set them up: batch processor, OTLP/HTTP, default span limits."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    provider = TracerProvider(resource=_resource())
    trace.set_tracer_provider(provider)
    return [_export_traces(provider), _export_metrics()]


def warm_telemetry(call, instrument=lambda: None):
    """As `telemetry`, after a first call that went through the instrumentation, too, and was not exported."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    provider = TracerProvider(resource=_resource())
    trace.set_tracer_provider(provider)
    instrument()
    warm_up(call)
    return [_export_traces(provider), _export_metrics()]


def _export_traces(provider):
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _export_metrics():
    from opentelemetry import metrics
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    provider = MeterProvider(resource=_resource(), metric_readers=[PeriodicExportingMetricReader(OTLPMetricExporter(), export_interval_millis=600_000)])
    metrics.set_meter_provider(provider)
    return provider


class Reader:
    """Counts content chunks and says when the client of the scenario leaves."""

    def __init__(self):
        self.chunks = 0

    def leaves(self, content) -> bool:
        if not content:
            return False
        self.chunks += 1
        return bool(SCHEDULE.cancel_after) and self.chunks >= SCHEDULE.cancel_after


def read(stream, content, close=None):
    """Reads a stream of an SDK as applications do. `content` picks the text of a chunk."""
    reader = Reader()
    for chunk in stream:
        if reader.leaves(content(chunk)):
            if SCHEDULE.cancel_how == "close":
                (close or stream.close)()
            break
    return f"{reader.chunks} chunks"


async def aread(stream, content, close=None):
    """As `read`, for an asynchronous stream; the only one that can have its task cancelled."""
    reader = Reader()
    async for chunk in stream:
        if reader.leaves(content(chunk)):
            if SCHEDULE.cancel_how == "task":
                asyncio.current_task().cancel()
                continue
            if SCHEDULE.cancel_how == "close":
                await (close or stream.close)()
            break
    return f"{reader.chunks} chunks"


def chat_body(model="gpt-4o-mini", **extra):
    return {
        "model": model,
        "messages": [{"role": "system", "content": "You are terse."}, {"role": "user", "content": PROMPT}],
        "temperature": 0.2,
        "max_tokens": 2000,
        **extra,
    }


def chat_text(chunk):
    return chunk.choices[0].delta.content if chunk.choices else None


def openai_chat(make=None, **extra):
    """One Chat Completions call with the OpenAI SDK."""
    if make is None:
        from openai import AsyncOpenAI, OpenAI

        make = AsyncOpenAI if SCHEDULE.cancel_how == "task" else OpenAI
    client = make(base_url=PROVIDER + "/v1", api_key="sk-mock", max_retries=RETRIES)
    body = chat_body(**extra)
    if SCHEDULE.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    if SCHEDULE.cancel_how == "task":

        async def call():
            return await aread(await client.chat.completions.create(**body), chat_text)

        return call()
    result = client.chat.completions.create(**body)
    if not SCHEDULE.stream:
        return result.id
    return read(result, chat_text)


def openai_responses():
    """One call of the Responses API with the OpenAI SDK."""
    from openai import AsyncOpenAI, OpenAI

    def text(event):
        return event.delta if event.type == "response.output_text.delta" else None

    body = {"model": "gpt-4o-mini", "input": PROMPT}
    make = AsyncOpenAI if SCHEDULE.cancel_how == "task" else OpenAI
    client = make(base_url=PROVIDER + "/v1", api_key="sk-mock", max_retries=RETRIES)
    if SCHEDULE.cancel_how == "task":

        async def call():
            return await aread(await client.responses.create(**body, stream=True), text)

        return call()
    if not SCHEDULE.stream:
        return client.responses.create(**body).id
    return read(client.responses.create(**body, stream=True), text)


def anthropic_messages():
    """One Messages call with the Anthropic SDK."""
    from anthropic import Anthropic, AsyncAnthropic

    def text(event):
        return getattr(event.delta, "text", None) if event.type == "content_block_delta" else None

    make = AsyncAnthropic if SCHEDULE.cancel_how == "task" else Anthropic
    client = make(base_url=PROVIDER, api_key="sk-mock", max_retries=RETRIES)
    body = {"model": "claude-sonnet-4-5", "max_tokens": 4096, "messages": [{"role": "user", "content": PROMPT}]}
    if SCENARIO == "thinking":
        body["thinking"] = {"type": "enabled", "budget_tokens": 1024}
    if SCHEDULE.cancel_how == "task":

        async def call():
            return await aread(await client.messages.create(**body, stream=True), text)

        return call()
    if not SCHEDULE.stream:
        return client.messages.create(**body).id
    return read(client.messages.create(**body, stream=True), text)


def mistral_chat():
    """One chat call with the Mistral SDK."""
    try:
        from mistralai import Mistral
    except ImportError:  # moved in version 2 of the SDK
        from mistralai.client import Mistral

    client = Mistral(server_url=PROVIDER + "/mistral", api_key="mock")
    body = {"model": "mistral-small-latest", "messages": [{"role": "user", "content": PROMPT}]}
    if not SCHEDULE.stream:
        return client.chat.complete(**body).id

    def text(event):
        return event.data.choices[0].delta.content if event.data.choices else None

    stream = client.chat.stream(**body)
    return read(stream, text, close=lambda: stream.response.close())


def cohere_chat():
    """One call of the v2 chat API with the Cohere SDK."""
    from cohere import ClientV2

    client = ClientV2(base_url=PROVIDER, api_key="mock")
    body = {"model": "command-a-03-2025", "messages": [{"role": "user", "content": PROMPT}], "request_options": {"max_retries": RETRIES}}
    if not SCHEDULE.stream:
        return client.chat(**body).id

    def text(event):
        return event.delta.message.content.text if event.type == "content-delta" else None

    return read(client.chat_stream(**body), text)


def _complete(call):
    result = call()
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def warm_up(call):
    """Makes a short call of the scenario's kind, none of whose telemetry is exported.

    A first call in a process pays for imports and the building of models, 10 to 1,500 ms
    that a service pays once in its life; they would stand in every capture otherwise.
    """
    global SCHEDULE, PROMPT
    kept = SCHEDULE, PROMPT
    SCHEDULE = dataclasses.replace(WARM_UP, stream=SCHEDULE.stream, cancel_how=SCHEDULE.cancel_how)
    PROMPT = f"Say words. [inst={INSTRUMENTATION} scenario={WARM_UP_SCENARIO}]"
    try:
        _complete(call)
    finally:
        SCHEDULE, PROMPT = kept


def run(call, providers=(), flush=None):
    """Makes the scenario's call, whatever becomes of it, and sends off the telemetry."""
    try:
        result = _complete(call)
        print(f"ok: {result}", file=sys.stderr)
    except (Exception, asyncio.CancelledError) as error:  # an application's last line of defence
        print(f"raised {type(error).__name__}: {str(error)[:160]}", file=sys.stderr)
    # Streams that were left are finished by the collector, as in a long-lived process.
    gc.collect()
    time.sleep(_SETTLE_S)
    if flush:
        flush()
    for provider in providers:  # which flushes; a flush of its own would export the metrics twice
        provider.shutdown()
