# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""Takes the recording machine out of a capture: values are replaced, nothing is dropped."""

import json
import os
import re
import socket

_HOST, _USER_HOME = socket.gethostname(), os.path.expanduser("~")

# Attributes that name the machine, its user or a process.
_CONSTANTS = {
    "host.name": {"stringValue": "host-1"},
    "host.id": {"stringValue": "0123456789abcdef0123456789abcdef"},
    "host.arch": {"stringValue": "amd64"},
    "process.owner": {"stringValue": "app"},
    "process.pid": {"intValue": "4242"},
    "process.parent_pid": {"intValue": "4241"},
    "process.executable.name": {"stringValue": "python"},
    "process.executable.path": {"stringValue": "/usr/local/bin/python"},
    "process.command": {"stringValue": "/app/client.py"},
    "process.command_line": {"stringValue": "/usr/local/bin/python /app/client.py"},
    "process.command_args": {"arrayValue": {"values": [{"stringValue": "/app/client.py"}]}},
    "process.working_directory": {"stringValue": "/app"},
    "os.version": {"stringValue": "6.1.0"},
    "os.description": {"stringValue": "Debian GNU/Linux 12 (bookworm)"},
    "thread.id": {"intValue": "140000000000000"},
}


class Scrubber:
    def __init__(self, project: str):
        """`project` is the folder of the checkout; paths below it become paths below /app."""
        paths = [
            (r"/\S*?/site-packages/", "/app/site-packages/"),
            (r"/\S*?/lib/python3\.\d+/", "/usr/local/lib/python3/"),
            (re.escape(project) + r"(?=/|\b)", "/app"),
            (re.escape(os.path.dirname(project)) + r"/", "/app/"),
            (re.escape(_USER_HOME) + r"(?=/|\b)", "/home/app"),
            (r"\b" + re.escape(_HOST) + r"\b", "host-1"),
        ]
        self._patterns = [(re.compile(pattern), value) for pattern, value in paths]

    def line(self, line: str) -> str:
        return json.dumps(self._node(json.loads(line)), ensure_ascii=False, separators=(",", ":"))

    def _node(self, node):
        if isinstance(node, dict):
            constant = _CONSTANTS.get(node.get("key")) if "value" in node else None
            if constant is not None and node["value"].keys() == constant.keys():
                return {**node, "value": constant}
            return {k: self._node(v) for k, v in node.items()}
        if isinstance(node, list):
            return [self._node(v) for v in node]
        if isinstance(node, str):
            for pattern, value in self._patterns:
                node = pattern.sub(value, node)
        return node
