"""The official SDK for Python without the tasks extension: as it comes, which finds the stateless revision by asking
(auto), and with the older handshake (legacy). A call that takes too long for it comes back as a handle."""

import asyncio

from httpx2 import AsyncClient
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult
from plays import PAUSE_ME, TOKEN, URLS, Plays, text_of, version_of

REVISIONS = {"auto": "2026-07-28", "legacy": "2025-11-25"}


async def introduce_yourself(context, params):
    assert params.message == "fixture asks: What is your name?", f"expected the question, found {params.message!r}"
    return ElicitResult(action="accept", content={"name": "Ann"})


def in_both_modes(act, server="plain"):
    async def play():
        for mode, revision in REVISIONS.items():
            http = AsyncClient(headers={"authorization": f"Bearer {TOKEN}"}, timeout=20)
            transport = streamable_http_client(URLS[server], http_client=http)
            async with http, Client(transport, mode=mode, elicitation_callback=introduce_yourself) as it:
                assert it.protocol_version == revision, f"expected {revision}, found {it.protocol_version}"
                await act(it)

    play.__name__ = act.__name__
    return play


async def plain(it):
    names = [tool.name for tool in (await it.list_tools()).tools]
    assert "greet" in names, f"expected greet among the tools, found {names}"
    assert text_of(await it.call_tool("greet", {"name": "Ann"})) == "Hello, Ann!"


async def progress(it):
    seen = []

    async def see(done, total, message):
        seen.append((done, total))

    result = await it.call_tool("test_tool_with_progress", {}, progress_callback=see)
    assert text_of(result) == "done"
    assert [done for done, _ in seen] == [0, 50, 100], f"expected three reports, found {seen}"


async def elicitation(it):
    result = await it.call_tool("test_input_required_result_elicitation")
    assert text_of(result) == "Hello, Ann!"


async def handle(it):
    result = await it.call_tool("slow_compute", {"seconds": 2, "label": "sum"})
    task_id = result.structured_content["task_id"]
    for _ in range(10):
        waited = await it.call_tool("task_wait", {"task_id": task_id, "wait_ms": 5000})
        if waited.structured_content["status"] == "completed":
            break
    assert waited.structured_content["result"]["content"][0]["text"] == "sum took 2 s", waited.structured_content


async def paused(it):
    result = await it.call_tool("slow_compute", {"seconds": 3, "label": PAUSE_ME})
    assert text_of(result) == f"{PAUSE_ME} took 3 s"


if __name__ == "__main__":
    plays = [in_both_modes(act) for act in (plain, progress, elicitation)]
    plays += [in_both_modes(handle, "impatient"), in_both_modes(paused)]
    asyncio.run(Plays(version_of("mcp")).run(*plays))
