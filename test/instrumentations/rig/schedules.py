# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""The schedules by which every server of the rig writes its streams.

A schedule is what the server intends; the truth file says what it did. Only the
standard library is used, since servers that run inside an instrumented process
(ASGI, gRPC) play the same schedules as the mock provider.
"""

from dataclasses import dataclass

ANSWER = "c"  # a chunk of the answer
REASONING = "r"  # a chunk of the model's reasoning


@dataclass(frozen=True)
class Chunk:
    """One write of content."""

    at_ms: int  # offset from the receipt of the request
    tokens: int
    kind: str = ANSWER


@dataclass(frozen=True)
class Schedule:
    chunks: tuple[Chunk, ...] = ()
    # How the response ends: complete, truncate (connection cut without a terminator),
    # error_event (an error in the stream), http500, zero (terminator only).
    end: str = "complete"
    end_at_ms: int | None = None  # when the end comes, if no chunk says it
    role_at_ms: int | None = None  # an opening event without content, ahead of the chunks
    stream: bool = True
    single: bool = False  # content and finish reason in one chunk
    fail_first: int = 0  # so many attempts are answered with HTTP 500
    cancel_after: int = 0  # the client leaves after so many content chunks
    cancel_how: str = "close"  # close: the stream is closed; break: the loop is left; task: the task is cancelled

    @property
    def tokens(self) -> int:
        return sum(c.tokens for c in self.chunks)

    @property
    def reasoning_tokens(self) -> int:
        return sum(c.tokens for c in self.chunks if c.kind == REASONING)

    @property
    def first_at_ms(self) -> int:
        """When the first body byte is due."""
        if self.role_at_ms is not None:
            return self.role_at_ms
        if self.chunks:
            return self.chunks[0].at_ms
        return self.end_at_ms or 0


def evenly(start: int, step: int, count: int, tokens: int, kind: str = ANSWER) -> tuple[Chunk, ...]:
    return tuple(Chunk(start + i * step, tokens, kind) for i in range(count))


# Real providers send the response headers when they accept the stream, well ahead of the first token.
HEADERS_AHEAD_MS = 150

SCHEDULES: dict[str, Schedule] = {
    "smooth4": Schedule(evenly(400, 80, 25, 4)),
    "smooth1": Schedule(evenly(400, 20, 100, 1)),
    "headburst": Schedule(evenly(300, 10, 20, 4) + evenly(1000, 500, 6, 1)),
    "stall3s": Schedule(evenly(400, 80, 10, 4) + evenly(4120, 80, 10, 4)),
    "truncated": Schedule(evenly(400, 80, 12, 4), end="truncate"),
    "cancelled": Schedule(evenly(400, 80, 60, 4), cancel_after=8),
    "cancelled_break": Schedule(evenly(400, 80, 60, 4), cancel_after=8, cancel_how="break"),
    "cancelled_task": Schedule(evenly(400, 80, 60, 4), cancel_after=8, cancel_how="task"),
    "http500": Schedule(end="http500", end_at_ms=400),
    "error_midstream": Schedule(evenly(400, 80, 10, 4), end="error_event"),
    "nonstream": Schedule(evenly(1200, 0, 1, 60), stream=False),
    "roleonly": Schedule(evenly(1800, 40, 20, 3), role_at_ms=300),
    "thinking": Schedule(evenly(400, 50, 20, 2, REASONING) + evenly(1900, 50, 20, 3)),
    "single": Schedule(evenly(700, 0, 1, 12), single=True),
    "zero": Schedule(end="zero", end_at_ms=500),
    "many200": Schedule(evenly(300, 10, 200, 1)),
    "retry_ok": Schedule(evenly(400, 80, 10, 4), fail_first=1),
}

# Played to clients before their instrumentation is on; never recorded.
WARM_UP_SCENARIO = "warmup"
WARM_UP = Schedule(evenly(5, 5, 3, 1))

WORDS = "alpha bravo charlie delta echo foxtrot golf hotel india juliett kilo lima mike november oscar papa".split()


def words(count: int, start: int) -> str:
    """`count` words of one token each, `start` words into the text."""
    return "".join(" " + WORDS[(start + i) % len(WORDS)] for i in range(count))
