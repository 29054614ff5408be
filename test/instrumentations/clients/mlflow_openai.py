# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
# MLflow exports by OTLP of its own accord when the endpoint for traces is set.
import app
import mlflow
import mlflow.openai

app.warm_up(app.openai_chat)
mlflow.openai.autolog()
app.run(app.openai_chat, flush=lambda: mlflow.flush_trace_async_logging(terminate=True))
