# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""A server-streaming gRPC call with client and server in one process, both instrumented."""

import asyncio
import os
import threading
from concurrent import futures

import app
import grpc
import playback
from opentelemetry.instrumentation.grpc import GrpcInstrumentorClient, GrpcInstrumentorServer

PORT = 19090 + os.getpid() % 500
attempts = 0


def generate(request, context):
    """The server. A synchronous handler, which is what the instrumentation wraps."""
    global attempts
    attempts += 1
    schedule = app.SCHEDULE
    metadata = dict(context.invocation_metadata())
    truth = playback.begin("grpc", "/mock.Chat/Generate", True, metadata.get("traceparent"))
    loop = asyncio.new_event_loop()
    gone = threading.Event()
    context.add_callback(gone.set)
    if schedule.end == "http500" or attempts <= schedule.fail_first:
        loop.run_until_complete(playback.until(truth, schedule.end_at_ms or 200))
        truth.end("grpc_UNAVAILABLE")
        context.abort(grpc.StatusCode.UNAVAILABLE, "no capacity")
    plan = playback.steps(schedule, truth)
    outcome = "client_cancelled"
    try:
        while True:
            try:
                kind, tokens, text = loop.run_until_complete(anext(plan))
            except StopAsyncIteration:
                outcome = {"zero": "completed_zero_chunks"}.get(schedule.end, "completed")
                return
            except RuntimeError:
                outcome = "truncated_by_server"
                raise
            if gone.is_set():
                return
            if kind == "e":
                outcome = "error_mid_stream"
                context.abort(grpc.StatusCode.INTERNAL, "generation failed")
            if kind in "cr":  # a stream of messages has no terminator and no role chunk
                truth.write(kind, tokens)
                yield text.encode()
    finally:
        truth.end(outcome)


def call():
    with grpc.insecure_channel(f"127.0.0.1:{PORT}") as channel:
        method = channel.unary_stream("/mock.Chat/Generate")
        for attempt in range(1 + app.SCHEDULE.fail_first):
            stream = method(app.PROMPT.encode())
            try:
                return app.read(stream, lambda message: message, close=getattr(stream, "cancel", stream.close))
            except grpc.RpcError:
                if attempt == app.SCHEDULE.fail_first:
                    raise


providers = app.telemetry()
GrpcInstrumentorServer().instrument()
GrpcInstrumentorClient().instrument()
server = grpc.server(futures.ThreadPoolExecutor(4))
handler = grpc.unary_stream_rpc_method_handler(generate)
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("mock.Chat", {"Generate": handler}),))
server.add_insecure_port(f"127.0.0.1:{PORT}")
server.start()


def stop():
    server.stop(0.5).wait()
    playback.save()


app.run(call, providers, flush=stop)
