# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""An OTLP/HTTP receiver that keeps every export request, and turns protobuf into OTLP/JSON.

The exporters of Python send protobuf. The JSON encoding of OTLP is that of proto3 with
three exceptions: ids are hexadecimal, enums are numbers, and field names are lowerCamelCase.
"""

import base64
import gzip
import json
import re
import zlib
from collections import defaultdict

from aiohttp import web
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_REQUESTS = {"traces": ExportTraceServiceRequest, "metrics": ExportMetricsServiceRequest, "logs": ExportLogsServiceRequest}
_PATH = re.compile(r"^/([\w.-]+)/([\w.-]+)/(?:.*/)?v1/(traces|metrics|logs)$")
# As message fields only: attribute keys are values of "key", never names of objects.
_IDS = {"traceId", "spanId", "parentSpanId"}


class Receiver:
    def __init__(self, log):
        self._bodies = defaultdict(list)  # (instrumentation, scenario) -> [(signal, content type, body)]
        self._log = log

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 28)
        app.router.add_route("*", "/{path:.*}", self._handle)
        return app

    async def _handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        match = _PATH.match(request.path)
        if match is None:
            self._log(f"unrouted {request.method} {request.path}")
            return web.json_response({})
        inst, scenario, signal = match.groups()
        self._bodies[inst, scenario].append((signal, request.headers.get("content-type", ""), _inflate(body)))
        if "json" in request.headers.get("content-type", ""):
            return web.json_response({})
        return web.Response(body=b"", content_type="application/x-protobuf")

    def take(self, inst: str, scenario: str) -> dict[str, list[str]]:
        """The export requests so far, by signal, each as one line of OTLP/JSON in the order of arrival."""
        lines = defaultdict(list)
        for signal, content_type, body in self._bodies.pop((inst, scenario), ()):
            lines[signal].append(to_json(signal, content_type, body))
        return lines


def _inflate(body: bytes) -> bytes:
    # aiohttp has undone any content-encoding it was told of; some exporters compress without saying so.
    if body[:2] == b"\x1f\x8b":
        return gzip.decompress(body)
    if body[:2] == b"\x78\x9c":
        return zlib.decompress(body)
    return body


def to_json(signal: str, content_type: str, body: bytes) -> str:
    if "json" in content_type:
        return json.dumps(json.loads(body), ensure_ascii=False, separators=(",", ":"))
    request = _REQUESTS[signal]()
    request.ParseFromString(body)
    message = MessageToDict(request, use_integers_for_enums=True)
    return json.dumps(_hex_ids(message), ensure_ascii=False, separators=(",", ":"))


def _hex_ids(node):
    if isinstance(node, dict):
        return {k: base64.b64decode(v).hex() if k in _IDS and isinstance(v, str) else _hex_ids(v) for k, v in node.items()}
    if isinstance(node, list):
        return [_hex_ids(v) for v in node]
    return node
