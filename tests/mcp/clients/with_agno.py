"""agno as it comes: it gives a call up after 10 seconds, and listens for progress."""

import asyncio
import json

from agno.tools.mcp import MCPTools
from plays import TOKEN, URLS, Plays, slowly, version_of


def connected(act):
    async def play():
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with MCPTools(url=URLS["as_it_comes"], transport="streamable-http", headers=headers) as tools:
            await act(tools)

    play.__name__ = act.__name__
    return play


async def plain(tools):
    names = list(tools.functions)
    assert "greet" in names and "task_wait" in names, f"expected greet and task_wait among the tools, found {names}"
    result = await tools.functions["greet"].entrypoint(name="Ann")
    assert result.content == "Hello, Ann!", f"expected a greeting, found {result}"


async def slow(tools):
    async def call(name, arguments):
        result = await tools.functions[name].entrypoint(**arguments)
        # A model is shown the text: the JSON in it begins on a line of its own.
        return json.loads(result.content[result.content.index("{") :])

    await slowly(call)


if __name__ == "__main__":
    asyncio.run(Plays(version_of("agno")).run(connected(plain), connected(slow)))
