# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""What a server really did with one request, in the format of testdata/captures."""

import time


class Truth:
    """Records the wall-clock instants of one HTTP or gRPC attempt, taken just before each write."""

    def __init__(self, **identity):
        self._received = time.time_ns()
        self.rec = {
            **identity,
            "request_received_unix_nano": str(self._received),
            "headers_sent_unix_nano": None,
            "first_write_unix_nano": None,
            "first_content_unix_nano": None,
            "first_answer_unix_nano": None,
            "last_content_unix_nano": None,
            "ended_unix_nano": None,
            "client_closed_unix_nano": None,
            "outcome": None,
            "prompt_tokens": 17,
            "output_tokens": 0,
            "reasoning_tokens": 0,
            "content_chunks": 0,
            "writes_format": [
                "ns after request_received",
                "tokens",
                "kind: h=headers o=role/opening c=answer r=reasoning f=finish u=usage d=[DONE] e=error b=whole body",
            ],
            "writes": [],
        }

    def headers(self) -> None:
        now = time.time_ns()
        self.rec["headers_sent_unix_nano"] = str(now)
        self.rec["writes"].append([now - self._received, 0, "h"])

    def write(self, kind: str, tokens: int = 0) -> None:
        """Notes a write that is about to happen."""
        now = time.time_ns()
        rec = self.rec
        rec["first_write_unix_nano"] = rec["first_write_unix_nano"] or str(now)
        rec["writes"].append([now - self._received, tokens, kind])
        if kind == "b" and rec["headers_sent_unix_nano"] is None:
            rec["headers_sent_unix_nano"] = str(now)
        if kind in "crb" and tokens:
            rec["first_content_unix_nano"] = rec["first_content_unix_nano"] or str(now)
            rec["last_content_unix_nano"] = str(now)
            rec["content_chunks"] += 1
            rec["output_tokens"] += tokens
        if kind == "r":
            rec["reasoning_tokens"] += tokens
        if kind in "cb" and tokens:
            rec["first_answer_unix_nano"] = rec["first_answer_unix_nano"] or str(now)

    def end(self, outcome: str) -> None:
        now = str(time.time_ns())
        self.rec["ended_unix_nano"] = now
        if outcome == "client_cancelled":
            self.rec["client_closed_unix_nano"] = now
        self.rec["outcome"] = outcome
