# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""Logfire's wrapper of the OpenAI SDK. Logfire brings its own SDK set-up, which exports by OTLP to the usual endpoint."""

import app
import logfire

app.warm_up(app.openai_chat)
logfire.configure(send_to_logfire=False, console=False, service_name="capture-" + app.INSTRUMENTATION)
logfire.instrument_openai()
app.run(app.openai_chat, flush=logfire.shutdown)
