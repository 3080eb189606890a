"""The Agents SDK of OpenAI as it comes: it gives a call up after 5 seconds. A skill that takes longer answers with a
handle before that, and what its tools say of it is what a model would read."""

import asyncio

from agents.mcp import MCPServerStreamableHttp, MCPUtil
from plays import TOKEN, URLS, Plays, slowly, text_of, version_of


def connected(act):
    async def play():
        params = {"url": URLS["as_it_comes"], "headers": {"authorization": f"Bearer {TOKEN}"}}
        async with MCPServerStreamableHttp(params=params) as server:
            await act(server)

    play.__name__ = act.__name__
    return play


async def plain(server):
    tools = await MCPUtil.get_function_tools(server, convert_schemas_to_strict=False, run_context=None, agent=None)
    names = [tool.name for tool in tools]
    assert "greet" in names and "task_wait" in names, f"expected greet and task_wait among the tools, found {names}"
    assert text_of(await server.call_tool("greet", {"name": "Ann"})) == "Hello, Ann!"


async def slow(server):
    async def call(name, arguments):
        return (await server.call_tool(name, arguments)).structured_content

    await slowly(call)


async def gives_up(server):
    """Told to wait longer than this client does, the server finds nobody to answer: what this one had to do before."""
    try:
        await server.call_tool("slow_compute", {"seconds": 8, "label": "x"}, {"dev.handover/waitMs": 20_000})
    except Exception:
        return
    raise AssertionError("expected it to give up after its 5 seconds, found an answer")


if __name__ == "__main__":
    plays = [connected(act) for act in (plain, slow, gives_up)]
    asyncio.run(Plays(version_of("openai-agents")).run(*plays))
