# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""A FastAPI application that streams server-sent events; spans come from its server side alone."""

import asyncio
import http.client
import os
import threading
import time

import app
import playback
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from schedules import HEADERS_AHEAD_MS
from wire import OpenAIChat

PORT = 18490 + os.getpid() % 500
server_app = FastAPI()
attempts = 0


@server_app.post("/v1/chat/completions")
async def chat(request: Request):
    global attempts
    attempts += 1
    schedule = app.SCHEDULE
    truth = playback.begin("asgi.sse", request.url.path, schedule.stream, request.headers.get("traceparent"))
    wire = OpenAIChat(truth.rec["response_id"], "mock-1", 17, {})
    if schedule.end == "http500" or attempts <= schedule.fail_first:
        await playback.until(truth, schedule.end_at_ms or 200)
        truth.write("e")
        truth.end("http_500")
        return JSONResponse(wire.error500, status_code=500)
    if not schedule.stream:
        await playback.until(truth, schedule.chunks[-1].at_ms)
        truth.write("b", schedule.tokens)
        truth.end("completed_nonstream")
        return JSONResponse(wire.whole("words", schedule.tokens, 0))

    async def body():
        outcome = "client_cancelled"
        try:
            async for kind, tokens, text in playback.steps(schedule, truth, wire):
                truth.write(kind, tokens)
                yield text
            outcome = {"zero": "completed_zero_chunks", "error_event": "error_event_mid_stream"}.get(schedule.end, "completed")
        except RuntimeError:
            outcome = "truncated_by_server"
            raise
        finally:
            truth.end(outcome)

    await playback.until(truth, max(0, schedule.first_at_ms - HEADERS_AHEAD_MS))
    truth.headers()
    return StreamingResponse(body(), media_type="text/event-stream")


def call():
    """A bare HTTP client, so that no span but the server's is made."""
    statuses = []
    for _ in range(1 + app.SCHEDULE.fail_first):
        connection = http.client.HTTPConnection("127.0.0.1", PORT)
        connection.request("POST", "/v1/chat/completions", b"{}", {"content-type": "application/json"})
        response = connection.getresponse()
        statuses.append(response.status)
        reader = app.Reader()
        while line := response.readline():
            if reader.leaves(b'"content":" ' in line):
                break
        response.close()
        connection.close()
    return f"{statuses}, {reader.chunks} chunks"


providers = app.telemetry()
options = {"exclude_spans": ["send", "receive"]} if app.INSTRUMENTATION.endswith("-excluded") else {}
FastAPIInstrumentor.instrument_app(server_app, **options)
server = uvicorn.Server(uvicorn.Config(server_app, host="127.0.0.1", port=PORT, log_level="critical"))
thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
thread.start()
while not server.started:
    time.sleep(0.01)


def stop():
    server.should_exit = True
    thread.join()
    playback.save()


app.run(call, providers, flush=stop)
