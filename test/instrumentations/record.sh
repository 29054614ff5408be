#!/bin/sh
# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
#
# Records captures of Python instrumentations into testdata/captures-python.
#   record.sh                          everything
#   record.sh openllmetry-openai       one instrumentation (or several, with commas)
#   record.sh all smooth4,many200      some scenarios
# PYTHON names the interpreter that makes the virtual environments (3.12 or later).
set -eu
cd "$(dirname "$0")"
venv=.work/venv/rig
mkdir -p .work
printf '*\n' > .work/.gitignore
if ! cmp -s requirements/rig.txt "$venv/requirements.installed"; then
	[ -x "$venv/bin/python" ] || "${PYTHON:-python3.12}" -m venv "$venv"
	"$venv/bin/python" -m pip install -q --no-deps -r requirements/rig.txt
	cp requirements/rig.txt "$venv/requirements.installed"
fi
exec "$venv/bin/python" rig/record.py "$@"
