# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""Records captures: record.py [instrumentation,...|all] [scenario,...|all]."""

import asyncio
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

from aiohttp import web

from provider import Provider
from receiver import Receiver
from schedules import SCHEDULES
from scrub import Scrubber

HOME = Path(__file__).resolve().parent.parent
PROJECT = HOME.parent.parent
WORK = HOME / ".work"
OUT = Path(os.environ.get("CAPTURE_OUT", PROJECT / "testdata" / "captures-python"))
PROVIDER_PORT = int(os.environ.get("CAPTURE_PROVIDER_PORT", "18480"))
RECEIVER_PORT = int(os.environ.get("CAPTURE_RECEIVER_PORT", "14418"))
PARALLEL = int(os.environ.get("CAPTURE_PARALLEL", "2"))
TIMEOUT_S = 150  # imports alone take tens of seconds on a busy machine


def install(group: str) -> Path:
    """The interpreter of a group's virtual environment, which holds exactly the pinned packages."""
    venv, lock = WORK / "venv" / group, HOME / "requirements" / f"{group}.txt"
    python, stamp = venv / "bin" / "python", venv / "requirements.sha256"
    want = hashlib.sha256(lock.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != want:
        print(f"installing {group} ...", flush=True)
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", "--no-deps", "-r", str(lock)], check=True)
        stamp.write_text(want)
    return python


async def serve(app: web.Application, port: int) -> web.AppRunner:
    # The access log would put work between two writes of a stream.
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    return runner


class Recorder:
    def __init__(self):
        self.provider = Provider()
        self.receiver = Receiver(print)
        self.scrub = Scrubber(str(PROJECT))

    async def record(self, name: str, spec: dict, scenario: str, python: Path) -> str:
        served = WORK / f"served-{name}-{scenario}.json"
        served.unlink(missing_ok=True)
        endpoint = f"http://127.0.0.1:{RECEIVER_PORT}/{name}/{scenario}"
        env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "PYTHON"))},
            "PYTHONPATH": str(HOME / "rig"),
            "PYTHONWARNINGS": "ignore",
            "CAPTURE_INSTRUMENTATION": name,
            "CAPTURE_SCENARIO": scenario,
            "CAPTURE_PROVIDER": f"http://127.0.0.1:{PROVIDER_PORT}",
            "CAPTURE_SERVED": str(served),  # truth of a server inside the client's process
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": "process,os,host",
            **{k: v.format(endpoint=endpoint) for k, v in spec.get("env", {}).items()},
        }
        command = [str(python), "-P", str(HOME / "clients" / spec["client"])]
        process = await asyncio.create_subprocess_exec(*command, env=env, cwd=WORK, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
        try:
            output, _ = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
        except TimeoutError:
            process.kill()
            output = b"raised TimeoutError: killed by the recorder"
            await process.wait()
        (WORK / "logs").mkdir(exist_ok=True)
        (WORK / "logs" / f"{name}.{scenario}.log").write_bytes(output)
        await asyncio.sleep(0.2)  # the provider sees a client that is gone at its next write

        truths = self.provider.truths.pop((name, scenario), [])
        if served.exists():
            truths += json.loads(served.read_text())
            served.unlink()
        for truth in truths:
            if truth["outcome"] is None:
                truth["outcome"] = "client_cancelled"
                truth["ended_unix_nano"] = truth["client_closed_unix_nano"] = str(time.time_ns())
        exports = self.receiver.take(name, scenario)
        self._write(name, scenario, truths, exports)
        last = [line for line in output.decode(errors="replace").splitlines() if line.startswith(("ok: ", "raised "))]
        return f"{(last or ['no outcome, see the log'])[-1]:60.60} {self._count(exports)}"

    def _write(self, name, scenario, truths, exports):
        folder = OUT / name
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"{scenario}.*"):
            old.unlink()
        if truths:
            body = ",\n".join(json.dumps(t, separators=(",", ":")) for t in truths)
            (folder / f"{scenario}.truth.json").write_text(f"[\n{body}\n]\n")
        for signal, lines in exports.items():
            # An exporter that finds nothing to say may still send an empty request.
            lines = [self.scrub.line(line) for line in lines if line != "{}"]
            if lines:
                (folder / f"{scenario}.{signal}.jsonl").write_text("\n".join(lines) + "\n")

    @staticmethod
    def _count(exports) -> str:
        spans = [s for line in exports.get("traces", ()) for r in json.loads(line).get("resourceSpans", ()) for sc in r["scopeSpans"] for s in sc["spans"]]
        events = sum(len(s.get("events", ())) for s in spans)
        return f"{len(spans)} spans, {events} events, {len(exports.get('metrics', ()))} metric exports"


async def main(names, scenarios):
    catalogue = tomllib.loads((HOME / "instrumentations.toml").read_text())
    names = list(catalogue) if names in (None, "all") else names.split(",")
    wanted = list(SCHEDULES) if scenarios in (None, "all") else scenarios.split(",")
    jobs = [(n, s) for n in names for s in wanted if s in catalogue[n].get("scenarios", list(SCHEDULES)) and s not in catalogue[n].get("without", ())]
    pythons = {n: install(catalogue[n]["group"]) for n in names}

    recorder = Recorder()
    runners = [await serve(recorder.provider.app(), PROVIDER_PORT), await serve(recorder.receiver.app(), RECEIVER_PORT)]
    gate, done = asyncio.Semaphore(PARALLEL), 0

    async def one(name, scenario):
        nonlocal done
        async with gate:
            result = await recorder.record(name, catalogue[name], scenario, pythons[name])
        done += 1
        print(f"[{done}/{len(jobs)}] {name:24} {scenario:16} {result}", flush=True)

    try:
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(one(*job))
    finally:
        for runner in runners:
            await runner.cleanup()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(*(sys.argv[1:] + [None, None])[:2]))
