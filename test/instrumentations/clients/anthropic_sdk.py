# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""The Anthropic SDK alone, which makes spans of its own once a tracer provider is set."""

import app

app.run(app.anthropic_messages, app.warm_telemetry(app.anthropic_messages))
