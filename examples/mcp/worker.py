"""An MCP agent with a skill. Every MCP host of the tenant sees `count_words` as a tool; each call of it comes here as work.
Argument: its name (counter)."""

import asyncio
import os
import sys

from httpx2 import AsyncClient
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

SKILL = {
    "name": "count_words",
    "description": "counts the words of a text",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "outputSchema": {"type": "object", "properties": {"words": {"type": "integer"}}, "required": ["words"]},
}

name = sys.argv[1] if len(sys.argv) > 1 else "counter"
server = os.environ.get("HANDOVER_SERVER", "http://127.0.0.1:8420")


async def work(call, job):
    """One task. Work without a skill has no arguments: its instructions are counted."""
    await call("work_update", {"task_id": job["task_id"], "message": "counting", "progress": 0.5})
    text = (job.get("arguments") or {}).get("text", job["instructions"])
    await call("work_complete", {"task_id": job["task_id"], "output": {"words": len(text.split())}})
    print(f"{name:8} MCP   did {job['title']!r}", flush=True)


async def main():
    # In development the token is the agent's id.
    http = AsyncClient(headers={"authorization": f"Bearer {name}"}, timeout=60)
    async with http, Client(streamable_http_client(f"{server}/mcp", http_client=http)) as host:

        async def call(tool, arguments):
            result = await host.call_tool(tool, arguments)
            if result.is_error:
                raise RuntimeError(f"{tool}: {result.content[0].text}")
            return result.structured_content

        await call("agent_register", {"name": "Counter", "description": "counts words", "skills": [SKILL]})
        print(f"{name:8} MCP   is waiting for tasks", flush=True)
        while True:
            found = await call("work_next", {"accept": True, "max": 1, "wait_ms": 20_000})
            for job in found["work"]:
                try:
                    await work(call, job)
                except RuntimeError as refused:  # it was cancelled, for example
                    print(f"{name:8} MCP   gave up {job['title']!r}: {refused}", flush=True)


asyncio.run(main())
