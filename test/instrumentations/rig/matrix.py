# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""Prints, as Markdown, what every capture holds: the table at the end of README.md."""

import json
import os
import sys
import tomllib
from pathlib import Path

from schedules import SCHEDULES

HOME = Path(__file__).resolve().parent.parent
CAPTURES = Path(os.environ.get("CAPTURE_OUT", HOME.parent.parent / "testdata" / "captures-python"))


def spans(path: Path):
    for line in path.read_text().splitlines():
        for resource in json.loads(line)["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                yield from scope["spans"]


def cell(folder: Path, scenario: str) -> str:
    if not (folder / f"{scenario}.truth.json").exists():
        return ""
    path = folder / f"{scenario}.traces.jsonl"
    if not path.exists():
        return "✗"
    found = list(spans(path))
    events = [e["name"] for s in found for e in s.get("events", ()) if e["name"] != "exception"]
    error = any(s.get("status", {}).get("code") == 2 for s in found)
    dropped = any(s.get("droppedEventsCount") for s in found)
    return f"{len(found)}{f'+{len(events)}' if events else ''}{'E' if error else ''}{'D' if dropped else ''}"


def main():
    names = list(tomllib.loads((HOME / "instrumentations.toml").read_text()))
    print("| | " + " | ".join(SCHEDULES) + " |")
    print("|---" * (len(SCHEDULES) + 1) + "|")
    for name in names:
        print(f"| {name} | " + " | ".join(cell(CAPTURES / name, s) for s in SCHEDULES) + " |")


if __name__ == "__main__":
    sys.exit(main())
