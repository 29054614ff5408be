# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""A Strands agent."""

import asyncio

import app
from strands import Agent
from strands.models.openai import OpenAIModel


async def call():
    arguments = {"base_url": app.PROVIDER + "/v1", "api_key": "sk-mock", "max_retries": app.RETRIES}
    model = OpenAIModel(client_args=arguments, model_id="gpt-4o-mini", params={"temperature": 0.2})
    agent = Agent(model=model, system_prompt="You are terse.", callback_handler=None)
    stream = agent.stream_async(app.PROMPT)
    reader = app.Reader()
    async for event in stream:
        if reader.leaves(event.get("data")):
            if app.SCHEDULE.cancel_how == "task":
                asyncio.current_task().cancel()
                continue
            if app.SCHEDULE.cancel_how == "close":
                await stream.aclose()
            break
    return f"{reader.chunks} chunks"


app.run(call, app.warm_telemetry(call))
