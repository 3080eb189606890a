"""Where a client program finds the servers, and how it tells what it did: a line of JSON for each play."""

import asyncio
import importlib.metadata
import json
import os
import sys
import time
import traceback

#: The servers: "as_it_comes", "plain" (lets calls wait long), "strict" (about headers) and "impatient" (answers a call
#: after a second at the latest).
URLS = json.loads(os.environ["MCP_URLS"])
TOKEN = os.environ["MCP_TOKEN"]
#: A call with this label, or about a file of this name, is paused by somebody else.
PAUSE_ME = os.environ["MCP_PAUSE_ME"]
PLAY_SECONDS = 60


def version_of(package):
    return f"{package} {importlib.metadata.version(package)}"


def tell(**what):
    print(json.dumps(what), flush=True)


def text_of(result):
    assert not result.is_error, f"expected no error, found {result}"
    return result.content[0].text


async def slowly(call):
    """A skill that takes longer than the client waits: it answers with a handle, with which the work is followed."""
    task = await call("slow_compute", {"seconds": 12, "label": "sum"})
    assert task["status"] == "working", f"expected a handle, found {task}"
    for _ in range(10):
        task = await call("task_wait", {"task_id": task["task_id"]})
        if task["status"] != "working":
            break
    assert task["status"] == "completed", f"expected it to complete, found {task}"
    assert task["result"]["content"][0]["text"] == "sum took 12 s", f"expected the result, found {task}"


class Plays:
    def __init__(self, *versions):
        tell(client=" with ".join(versions))

    async def run(self, *plays):
        failed = False
        for play in plays:
            began = time.monotonic()
            try:
                await asyncio.wait_for(play(), PLAY_SECONDS)
                failure = None
            except Exception as error:
                traceback.print_exc()
                failure, failed = f"{type(error).__name__}: {error}", True
            ms = round((time.monotonic() - began) * 1000)
            tell(play=play.__name__, ms=ms, failure=failure)
        sys.exit(failed)
