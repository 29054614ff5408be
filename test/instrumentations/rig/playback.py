# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""Plays a schedule inside an application's own server, and hands its truth to the recorder."""

import asyncio
import json
import os
import time

from app import INSTRUMENTATION, SCENARIO
from schedules import words
from truth import Truth

_attempts = []


def begin(protocol: str, path: str, stream: bool, traceparent: str | None = None) -> Truth:
    """Opens the truth of an attempt; the request has just been received."""
    truth = Truth(
        instrumentation=INSTRUMENTATION,
        scenario=SCENARIO,
        attempt=len(_attempts) + 1,
        protocol=protocol,
        response_id=f"{protocol}-{SCENARIO}-{len(_attempts) + 1}",
        path=path,
        stream_requested=stream,
        usage_reported=False,
        traceparent=traceparent,
    )
    truth.started = time.perf_counter()
    _attempts.append(truth.rec)
    return truth


def save() -> None:
    with open(os.environ["CAPTURE_SERVED"], "w") as file:
        json.dump(_attempts, file)


async def until(truth: Truth, at_ms: float) -> None:
    await asyncio.sleep(max(0.0, truth.started + at_ms / 1000 - time.perf_counter()))


async def steps(schedule, truth, wire=None):
    """Yields (kind, tokens, text) when each write is due. `wire` turns words into the format of the response."""

    def text(name, *args):
        return getattr(wire, name)(*args) if wire else " ".join(str(a) for a in args)

    if schedule.end == "zero":
        await until(truth, schedule.end_at_ms)
        yield "d", 0, text("done")
        return
    if schedule.role_at_ms is not None:
        await until(truth, schedule.role_at_ms)
        yield "o", 0, text("opening")
    sent = 0
    for chunk in schedule.chunks:
        await until(truth, chunk.at_ms)
        if sent == 0 and schedule.role_at_ms is None and not schedule.single:
            yield "o", 0, text("opening")
        spoken = words(chunk.tokens, sent)
        yield chunk.kind, chunk.tokens, text("single", spoken) if schedule.single else text("content", spoken, chunk.kind)
        sent += chunk.tokens
    if schedule.end == "truncate":
        await asyncio.sleep(0.06)
        raise RuntimeError("the generator failed")
    if schedule.end == "error_event":
        await asyncio.sleep(0.06)
        yield "e", 0, text("error")
        return
    if not schedule.single:
        yield "f", 0, text("finish", schedule.tokens, schedule.reasoning_tokens)
    yield "d", 0, text("done")
