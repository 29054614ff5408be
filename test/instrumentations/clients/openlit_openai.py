# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""OpenLIT."""

import os

import app
import openlit

app.warm_up(app.openai_chat)
providers = app.telemetry()
openlit.init(otlp_endpoint=os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"], application_name="capture-" + app.INSTRUMENTATION, disable_batch=False)
app.run(app.openai_chat, providers)
