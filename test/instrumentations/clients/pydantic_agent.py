# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""A Pydantic AI agent."""

import asyncio

import app
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


async def call():
    client = AsyncOpenAI(base_url=app.PROVIDER + "/v1", api_key="sk-mock", max_retries=app.RETRIES)
    agent = Agent(OpenAIChatModel("gpt-4o-mini", provider=OpenAIProvider(openai_client=client)), system_prompt="You are terse.")
    if not app.SCHEDULE.stream:
        return len((await agent.run(app.PROMPT)).output)
    reader = app.Reader()
    async with agent.run_stream(app.PROMPT) as result:
        async for delta in result.stream_text(delta=True, debounce_by=None):
            if reader.leaves(delta):
                if app.SCHEDULE.cancel_how == "task":
                    asyncio.current_task().cancel()
                    continue
                break
    return f"{reader.chunks} chunks"


app.run(call, app.warm_telemetry(call, Agent.instrument_all))
