#!/usr/bin/env python3
# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""Record what OpenTelemetry's FastAPI instrumentation writes for a streamed response: one child span per body message.

The application is an ordinary FastAPI endpoint on uvicorn that sends 50 server-sent events, 20 ms apart, after 200 ms.

    python3 -m venv venv && venv/bin/pip install -r requirements.txt && venv/bin/python capture.py .
"""

import asyncio
import base64
import json
import pathlib
import sys
import threading
import time

import httpx
import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

CHUNKS, EVERY, FIRST = 50, 0.020, 0.200


def application(tracing):
    app = FastAPI()

    @app.get("/answer")
    async def answer():
        async def events():
            begun = asyncio.get_running_loop().time()
            for number in range(CHUNKS):
                await asyncio.sleep(max(0.0, begun + FIRST + number * EVERY - asyncio.get_running_loop().time()))
                yield f"data: word {number}\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    FastAPIInstrumentor.instrument_app(app, tracer_provider=tracing)
    return app


def otlp_json(spans):
    """OTLP/JSON writes ids in hexadecimal and enumerations as numbers, where protobuf's own JSON mapping does neither."""
    request = MessageToDict(encode_spans(spans), use_integers_for_enums=True)

    def ids(node):
        if isinstance(node, list):
            for child in node:
                ids(child)
        elif isinstance(node, dict):
            for key, value in node.items():
                if key in ("traceId", "spanId", "parentSpanId"):
                    node[key] = base64.b64decode(value).hex()
                else:
                    ids(value)

    ids(request)
    return json.dumps(request)


def main():
    out = pathlib.Path(sys.argv[1])
    exporter = InMemorySpanExporter()
    tracing = TracerProvider(resource=Resource.create({"service.name": "chat", "service.instance.id": "chat-1"}))
    tracing.add_span_processor(SimpleSpanProcessor(exporter))
    server = uvicorn.Server(uvicorn.Config(application(tracing), host="127.0.0.1", port=0, log_level="warning"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    for _ in range(2):  # the first request pays for imports
        exporter.clear()
        with httpx.stream("GET", f"http://127.0.0.1:{port}/answer") as response:
            for _ in response.iter_lines():
                pass
        time.sleep(0.2)
    spans = exporter.get_finished_spans()
    (out / "stream50.traces.json").write_text(otlp_json(spans) + "\n")
    print(f"{len(spans)} spans: {sorted({span.name for span in spans})}")
    server.should_exit = True


if __name__ == "__main__":
    main()
