# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""A mock LLM provider that writes by a schedule and keeps the true time of every write."""

import asyncio
import json
import re
import time
from collections import Counter, defaultdict

from aiohttp import web

from schedules import HEADERS_AHEAD_MS, SCHEDULES, WARM_UP, WARM_UP_SCENARIO, words
from truth import Truth
from wire import format_for

# The prompt names the capture, as the one thing that every SDK sends along unchanged.
_MARK = re.compile(r"\[inst=([\w.-]+) scenario=([\w.-]+)\]")


class Provider:
    def __init__(self):
        self.truths = defaultdict(list)  # (instrumentation, scenario) -> one record per attempt
        self._attempts = Counter()
        self._responses = 0

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        return app

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        started = time.perf_counter()
        received = Truth()
        raw = await request.text()
        mark = _MARK.search(raw) or _MARK.search(request.query_string)
        query = request.query
        inst, scenario = mark.groups() if mark else (query.get("inst", "unknown"), query.get("scenario", ""))
        schedule = WARM_UP if scenario == WARM_UP_SCENARIO else SCHEDULES.get(scenario)
        if schedule is None:
            return web.json_response({"error": {"message": f"no schedule {scenario!r} for {request.path}"}}, status=404)
        body = json.loads(raw) if raw else {}
        key = (inst, scenario)
        self._attempts[key] += 1
        self._responses += 1

        make = format_for(request.path)
        response_id = f"{make.id_prefix}-{inst}-{scenario}-{self._responses}"
        wire = make(response_id, body.get("model", "mock-1"), received.rec["prompt_tokens"], body)
        stream = body.get("stream") is True or query.get("stream") == "1"
        truth = received
        truth.rec = {
            "instrumentation": inst,
            "scenario": scenario,
            "attempt": self._attempts[key],
            "protocol": wire.name,
            "response_id": response_id,
            "path": request.path,
            "stream_requested": stream,
            "usage_reported": wire.reports_usage or not stream,
            "traceparent": request.headers.get("traceparent"),
            **received.rec,
        }
        if schedule is not WARM_UP:
            self.truths[key].append(truth.rec)

        async def until(at_ms):
            delay = started + at_ms / 1000 - time.perf_counter()
            await asyncio.sleep(max(0.0, delay))

        headers = {"x-request-id": "req-" + response_id}
        if schedule.end == "http500" or self._attempts[key] <= schedule.fail_first:
            await until(schedule.end_at_ms or 200)
            truth.write("e")
            truth.end("http_500")
            return web.json_response(wire.error500, status=500, headers=headers)
        if not stream:
            await until(schedule.chunks[-1].at_ms)
            truth.write("b", schedule.tokens)
            truth.end("completed_nonstream")
            return web.json_response(wire.whole(words(schedule.tokens, 0), schedule.tokens, schedule.reasoning_tokens), headers=headers)

        response = web.StreamResponse(headers={**headers, "content-type": wire.content_type, "cache-control": "no-cache"})
        await until(max(0, schedule.first_at_ms - HEADERS_AHEAD_MS))
        truth.headers()
        try:
            await response.prepare(request)
            outcome = await self._play(request, response, schedule, wire, truth, until)
        except (ConnectionResetError, asyncio.CancelledError):
            truth.end("client_cancelled")
            return response
        truth.end(outcome)
        return response

    async def _play(self, request, response, schedule, wire, truth, until) -> str:
        async def put(kind, text, tokens=0):
            if not text:
                return
            if request.transport is None or request.transport.is_closing():
                raise ConnectionResetError
            truth.write(kind, tokens)
            await response.write(text.encode())

        if schedule.end == "zero":
            await until(schedule.end_at_ms)
            for kind, text in wire.empty():
                await put(kind, text)
            await response.write_eof()
            return "completed_zero_chunks"
        if schedule.role_at_ms is not None:
            await until(schedule.role_at_ms)
            await put("o", wire.opening())
        sent = 0
        for chunk in schedule.chunks:
            await until(chunk.at_ms)
            if sent == 0 and schedule.role_at_ms is None and not schedule.single:
                await put("o", wire.opening())
            text = words(chunk.tokens, sent)
            await put(chunk.kind, wire.single(text) if schedule.single else wire.content(text, chunk.kind), chunk.tokens)
            sent += chunk.tokens
        if schedule.end == "truncate":
            await asyncio.sleep(0.06)
            request.transport.abort()
            return "truncated_by_server"
        if schedule.end == "error_event":
            await asyncio.sleep(0.06)
            await put("e", wire.error())
            await response.write_eof()
            return "error_event_mid_stream"
        if not (schedule.single and wire.name == "openai.chat"):
            await put("f", wire.finish(schedule.tokens, schedule.reasoning_tokens))
        await put("u", wire.usage(schedule.tokens, schedule.reasoning_tokens))
        await put("d", wire.done())
        await response.write_eof()
        return "completed"
