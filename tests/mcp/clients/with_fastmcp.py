"""FastMCP's client with its tasks: it declares the extension by itself and polls under the hood."""

import asyncio

from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp.exceptions import ToolError
from fastmcp_tasks.client import call_tool_task
from mcp import MCPError
from plays import PAUSE_ME, TOKEN, URLS, Plays, version_of

HEADER_MISMATCH = -32020


async def say_yes(message, response_type, params, context):
    assert message in ("fixture asks: Delete old.txt?", f"fixture asks: Delete {PAUSE_ME}?"), f"expected the question, found {message!r}"
    return {"confirm": True}


def client(server="plain", **options):
    return Client(StreamableHttpTransport(URLS[server], headers={"authorization": f"Bearer {TOKEN}"}), **options)


def text(result):
    return result.content[0].text


async def plain():
    async with client() as it:
        names = [tool.name for tool in await it.list_tools()]
        assert "greet" in names, f"expected greet among the tools, found {names}"
        assert text(await it.call_tool("greet", {"name": "Ann"})) == "Hello, Ann!"


async def task():
    async with client() as it:
        task = await call_tool_task(it, "slow_compute", {"seconds": 0.3, "label": "sum"})
        assert (await task.status()).status == "working"
        assert text(await task.result()) == "sum took 0.3 s"
        # The same without a handle.
        assert text(await it.call_tool("slow_compute", {"seconds": 0.1, "label": "sum"})) == "sum took 0.1 s"


async def elicitation():
    async with client(elicitation_handler=say_yes) as it:
        assert text(await it.call_tool("confirm_delete", {"filename": "old.txt"})) == "deleted old.txt"


async def cancel():
    async with client() as it:
        task = await call_tool_task(it, "slow_compute", {"seconds": 60})
        await task.cancel()
        assert (await task.wait(timeout=20)).status == "cancelled"


async def failure():
    async with client() as it:
        for tool, message in [("failing_job", "the job failed"), ("protocol_error_job", "the job broke down")]:
            try:
                result = await it.call_tool(tool)
            except ToolError as error:
                assert message in str(error), f"expected {message!r}, found {error}"
            else:
                raise AssertionError(f"expected {tool} to fail, found {result}")


async def paused():
    async with client() as it:
        result = await it.call_tool("slow_compute", {"seconds": 3, "label": PAUSE_ME})
        assert text(result) == f"{PAUSE_ME} took 3 s"


async def paused_asking():
    async with client(elicitation_handler=say_yes) as it:
        result = await it.call_tool("confirm_delete", {"filename": PAUSE_ME})
        assert text(result) == f"deleted {PAUSE_ME}"


async def strict_headers():
    """It omits Mcp-Name on task methods, which a strict server refuses: the task is made, and cannot be looked at."""
    async with client("strict") as it:
        assert text(await it.call_tool("greet", {"name": "Ann"})) == "Hello, Ann!"
        task = await call_tool_task(it, "slow_compute", {"seconds": 0.1})
        for ask in (task.status, task.cancel):
            try:
                answer = await ask()
            except MCPError as error:
                assert error.error.code == HEADER_MISMATCH, f"expected {HEADER_MISMATCH}, found {error.error}"
            else:
                raise AssertionError(f"expected a refusal, found {answer}")


if __name__ == "__main__":
    versions = version_of("fastmcp"), version_of("fastmcp-tasks")
    plays = plain, task, elicitation, cancel, failure, paused, paused_asking, strict_headers
    asyncio.run(Plays(*versions).run(*plays))
