#!/usr/bin/env python3
# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""Record what OpenLLMetry writes for streamed chat completions.

Everything on the span is written by the published instrumentation around the published `openai` client; this script
only plays the provider, by a schedule, and stores the exported spans as OTLP/JSON, one file per schedule. OpenLLMetry
is the instrumentation chosen because it records one event per chunk and the provider's token usage on the same span,
which is what the chunk-granularity numbers need.

    python3 -m venv venv && venv/bin/pip install -r requirements.txt
    venv/bin/python capture.py .          # about a minute: the schedules run at the same time, in real time
"""

import base64
import json
import pathlib
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.protobuf.json_format import MessageToDict
from openai import OpenAI
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.instrumentation.openai import OpenAIInstrumentor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

MODEL = "example-model"


def even(first, chunks, every, tokens):
    """A schedule of (milliseconds after the request, tokens) with equal gaps."""
    return [(first + i * every, tokens) for i in range(chunks)]


# name: (schedule, how the response ends)
SCHEDULES = {
    # 50 tokens a second in chunks of four, and of one: a token rate cannot tell these two apart.
    "smooth4": (even(400, 25, 80, 4), "done"),
    "smooth1": (even(400, 100, 20, 1), "done"),
    # The same chunks at half the speed, after a longer prompt, and a shorter answer: none is a change of granularity.
    "slow4": (even(400, 25, 160, 4), "done"),
    "longprompt4": (even(1600, 25, 80, 4), "done"),
    "short4": (even(400, 3, 80, 4), "done"),
    # The head window holds three quarters of the answer, then a trickle.
    "headburst": (even(300, 20, 10, 4) + even(1000, 6, 500, 1), "done"),
    "stall3s": (even(400, 10, 80, 4) + even(4120, 10, 80, 4), "done"),
    # One long silence, near the idle timeout of a minute that proxies commonly have.
    "gap50s": (even(400, 5, 80, 4) + even(50720, 5, 80, 4), "done"),
    "slowfirst": (even(5000, 10, 80, 4), "done"),
    "long20s": (even(400, 98, 200, 4), "done"),
    # The provider closes the connection after twelve chunks, without a finish reason.
    "truncated": (even(400, 12, 80, 4), "cut"),
    "error_midstream": (even(400, 12, 80, 4), "error"),
    "http500": ([(400, 0)], "http500"),
}


class Provider(BaseHTTPRequestHandler):
    """An OpenAI-compatible chat endpoint; the schedule's name is the prompt."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        received = time.monotonic()
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        schedule, ending = SCHEDULES[request["messages"][0]["content"]]
        if ending == "http500":
            time.sleep(schedule[0][0] / 1000)
            body = json.dumps({"error": {"message": "Internal error", "type": "server_error"}}).encode()
            self.send_response(500)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number, (at, tokens) in enumerate(schedule):
            time.sleep(max(0.0, received + at / 1000 - time.monotonic()))
            delta = {"content": " word" * tokens}
            if number == 0:
                delta["role"] = "assistant"
            self.event(request, [{"index": 0, "delta": delta, "finish_reason": None}])
        if ending == "error":
            self.write({"error": {"message": "Overloaded", "type": "server_error", "code": "overloaded"}})
        if ending == "done":
            self.event(request, [{"index": 0, "delta": {}, "finish_reason": "stop"}])
            tokens = sum(n for _, n in schedule)
            self.event(request, [], {"prompt_tokens": 17, "completion_tokens": tokens, "total_tokens": 17 + tokens})
            self.data(b"data: [DONE]\n\n")
        if ending != "cut":
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True

    def event(self, request, choices, usage=None):
        self.write({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": int(time.time()),
            "model": request["model"], "choices": choices, "usage": usage,
        })

    def write(self, body):
        self.data(b"data: " + json.dumps(body).encode() + b"\n\n")

    def data(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


class Keep(SpanExporter):
    """Collects finished spans by the schedule in their prompt's thread."""

    def __init__(self):
        self.spans, self.by_thread = {}, {}

    def export(self, spans):
        self.spans.setdefault(self.by_thread[threading.get_ident()], []).extend(spans)
        return SpanExportResult.SUCCESS


def otlp_json(spans):
    """OTLP/JSON writes ids in hexadecimal where protobuf's own JSON mapping writes base64."""
    request = MessageToDict(encode_spans(spans))

    def ids(node):
        if isinstance(node, list):
            for child in node:
                ids(child)
        elif isinstance(node, dict):
            for key, value in node.items():
                if key in ("traceId", "spanId", "parentSpanId"):
                    node[key] = base64.b64decode(value).hex()
                elif key in ("kind", "code") and isinstance(value, str):
                    node[key] = {"SPAN_KIND_INTERNAL": 1, "SPAN_KIND_CLIENT": 3, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}[value]
                else:
                    ids(value)

    ids(request)
    # The only change to what was written: paths of the recording machine in exception stack traces.
    return re.sub(r'File \\"[^"]*?/([^/"]+)\\"', r'File \\"/app/\1\\"', json.dumps(request))


def main():
    out = pathlib.Path(sys.argv[1])
    keep = Keep()
    tracing = TracerProvider(resource=Resource.create({"service.name": "shop-assistant", "service.instance.id": "shop-assistant-1"}))
    tracing.add_span_processor(SimpleSpanProcessor(keep))
    trace.set_tracer_provider(tracing)
    OpenAIInstrumentor().instrument()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base_url = f"http://127.0.0.1:{server.server_port}/v1"

    def call(name):
        keep.by_thread[threading.get_ident()] = name
        client = OpenAI(base_url=base_url, api_key="none", max_retries=0)
        try:
            stream = client.chat.completions.create(
                model=MODEL, stream=True, stream_options={"include_usage": True},
                messages=[{"role": "user", "content": name}],
            )
            for _ in stream:
                pass
        except Exception as error:  # noqa: BLE001 - a failing provider is what some schedules are for
            print(f"{name}: {type(error).__name__}: {error}")

    # One call first, alone: it pays for the client's imports and connection set-up, which are not the provider's time.
    warm = threading.Thread(target=call, args=("short4",))
    warm.start()
    warm.join()
    keep.spans.clear()
    threads = [threading.Thread(target=call, args=(name,)) for name in SCHEDULES]
    for thread in threads:
        thread.start()
        time.sleep(0.5)
    for thread in threads:
        thread.join()
    for name in SCHEDULES:
        spans = keep.spans.get(name, [])
        print(f"{name}: {len(spans)} spans, {sum(len(s.events) for s in spans)} events")
        if spans:
            (out / f"{name}.traces.json").write_text(otlp_json(spans) + "\n")


if __name__ == "__main__":
    main()
