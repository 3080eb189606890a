"""A host on the official MCP SDK for Python. As `caller` it calls a skill and answers what it is asked; as `worker` it is an agent that
lives in the host's tools: it takes the next task, says how it goes, and completes it. Its arguments: the server, its name, which of the
two, and for a caller the skill."""

import asyncio
import json
import sys

from httpx2 import AsyncClient
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult


def say(**what):
    print(json.dumps(what), flush=True)


async def answer(context, params):
    say(asked=params.message)
    return ElicitResult(action="accept", content={"answer": "left"})


async def call(it, skill):
    seen = []

    async def see(done, total, message):
        seen.append(message)

    result = await it.call_tool(skill, {"depth": 3}, progress_callback=see)
    say(result=result.structured_content or result.content[0].text, seen=seen, is_error=bool(result.is_error))


async def work(it):
    found = []
    while not found:
        next_work = await it.call_tool("work_next", {"accept": True})
        found = next_work.structured_content["work"]
    task = found[0]["task_id"]
    say(taken=task, instructions=found[0]["instructions"])
    await it.call_tool("work_update", {"task_id": task, "message": "half way", "progress": 1, "total": 2})
    asked = await it.call_tool("work_ask", {"task_id": task, "questions": {"side": {"message": "Which side?"}}})
    # The answer comes with that call, or as an order of a later one.
    while "left" not in json.dumps(asked.structured_content):
        asked = await it.call_tool("work_checkpoint", {"task_id": task})
    say(told=asked.structured_content)
    done = await it.call_tool("work_complete", {"task_id": task, "output": {"dug": "left"}})
    say(done=done.structured_content)


async def main(server, name, role, *skill):
    http = AsyncClient(headers={"authorization": f"Bearer {name}"}, timeout=30)
    transport = streamable_http_client(f"http://{server}/mcp", http_client=http)
    async with http, Client(transport, elicitation_callback=answer) as it:
        say(ready=name)
        await (call(it, *skill) if role == "caller" else work(it))


asyncio.run(main(*sys.argv[1:]))
