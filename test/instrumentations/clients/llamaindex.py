# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""LlamaIndex under OpenInference."""

import app
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai import OpenAI
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor


def call():
    llm = OpenAI(model="gpt-4o-mini", api_base=app.PROVIDER + "/v1", api_key="sk-mock", max_retries=app.RETRIES, temperature=0.2)
    messages = [ChatMessage(role="system", content="You are terse."), ChatMessage(role="user", content=app.PROMPT)]
    if not app.SCHEDULE.stream:
        return len(llm.chat(messages).message.content)
    if app.SCHEDULE.cancel_how == "task":

        async def acall():
            return await app.aread(await llm.astream_chat(messages), lambda r: r.delta)

        return acall()
    return app.read(llm.stream_chat(messages), lambda r: r.delta)


app.run(call, app.warm_telemetry(call, LlamaIndexInstrumentor().instrument))
