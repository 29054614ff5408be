# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""The plain HTTP clients, reading server-sent events line by line: httpx, requests, aiohttp."""

import app

URL = app.PROVIDER + "/v1/chat/completions"
BODY = app.chat_body(stream=app.SCHEDULE.stream)


def text(line):
    return '"content":" ' in (line.decode() if isinstance(line, bytes) else line)


def httpx_call():
    import httpx

    with httpx.Client(timeout=30) as client, client.stream("POST", URL, json=BODY) as response:
        response.raise_for_status()
        return app.read(response.iter_lines(), text, close=response.close)


def requests_call():
    import requests

    with requests.Session() as session, session.post(URL, json=BODY, stream=True, timeout=30) as response:
        response.raise_for_status()
        return app.read(response.iter_lines(chunk_size=None), text, close=response.close)


async def aiohttp_call():
    import aiohttp

    async with aiohttp.ClientSession() as session, session.post(URL, json=BODY) as response:
        response.raise_for_status()

        async def close():
            response.close()

        return await app.aread(response.content, text, close=close)


providers = app.telemetry()
if app.INSTRUMENTATION == "httpx":
    from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor

    HTTPXClientInstrumentor().instrument()
    call = httpx_call
elif app.INSTRUMENTATION == "requests":
    from opentelemetry.instrumentation.requests import RequestsInstrumentor

    RequestsInstrumentor().instrument()
    call = requests_call
else:
    from opentelemetry.instrumentation.aiohttp_client import AioHttpClientInstrumentor

    AioHttpClientInstrumentor().instrument()
    call = aiohttp_call
app.run(call, providers)
