"""An MCP agent that has its work done by others. It asks its requester a question, delegates to a MACP agent and to a Grid agent as
subtasks, and passes on what the requester orders: steers, a pause, going on. Argument: seconds between two looks (1)."""

import asyncio
import os
import sys

from httpx2 import AsyncClient
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

ENDED = {"completed", "failed", "rejected", "cancelled", "expired"}
REGIONS = {"type": "string", "enum": ["Europe", "Americas", "Asia"], "title": "Region"}
FORM = {"type": "object", "properties": {"region": REGIONS}, "required": ["region"]}

pace = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
server = os.environ.get("HANDOVER_SERVER", "http://127.0.0.1:8420")


def say(text):
    print(f"lead     MCP   {text}", flush=True)


class Refused(RuntimeError):
    """The server said no to a call."""


class Lead:
    def __init__(self, host):
        self.host = host
        self.steers = []  # what the requester has said and nobody who works on it has been told yet

    async def call(self, tool, **arguments):
        result = await self.host.call_tool(tool, arguments)
        if result.is_error:
            raise Refused(f"{tool}: {result.content[0].text}")
        return result.structured_content

    def hear(self, told):
        """Keep what a safe point brought. Answers are for whoever asked."""
        self.steers += [order["message"] for order in told["orders"] if order["kind"] in ("steer", "message")]
        if told["ended"]:
            raise RuntimeError("the task has ended")

    async def ask(self, task, key, message, schema):
        """Ask the requester, and wait for the answer however long that takes. It comes with the call, or as an order later."""
        say(f"asks: {message}")
        told = await self.call("work_ask", task_id=task, questions={key: {"message": message, "schema": schema}})
        self.hear(told)
        answers = dict(told.get("answers") or {})
        while key not in answers:
            told = await self.call("work_checkpoint", task_id=task, wait_ms=20_000)
            self.hear(told)
            for order in told["orders"]:
                if order["kind"] == "answer":
                    answers |= order["answers"]
        return answers[key]["content"]

    async def have_done(self, task, agent, title, instructions, since, until):
        """Delegate a subtask and follow it to its end: its progress is ours between two marks, our orders are its orders."""
        arguments = {"agent": agent, "title": title, "instructions": instructions, "parent_task_id": task, "queue": True}
        child = (await self.call("delegate_task", **arguments))["task_id"]
        say(f"delegated {title!r} to {agent}")
        while (status := await self.call("task_status", task_id=child))["state"] not in ENDED:
            progress = since + (until - since) * (status.get("progress") or 0)
            message = f"{agent}: {status.get('message') or status['state']}"
            told = await self.call("work_update", task_id=task, progress=progress, total=1, message=message)
            self.hear(told)
            if told["paused"]:
                await self.stand_still(task, child, agent)
            # Before somebody has taken the child, for example while it waits for an approval, nobody can be steered.
            elif status.get("assignee"):
                await self.pass_on(child, agent)
            await asyncio.sleep(pace)
        if status["state"] != "completed":
            raise RuntimeError(f"{agent} did not do {title!r}: {status['state']}")
        return status["result"]["content"][0]["text"]

    async def pass_on(self, child, agent):
        """Steer the child as we were steered. What it does not take, because it has just reported, is kept for the next one."""
        while self.steers:
            try:
                await self.call("task_steer", task_id=child, message=self.steers[0])
            except Refused as refused:
                return say(f"could not pass a steer on to {agent} yet: {refused}")
            say(f"passed a steer on to {agent}: {self.steers.pop(0)}")

    async def stand_still(self, task, child, agent):
        """Pause the child, wait until the requester lets us go on, and let the child go on as well."""
        try:
            await self.call("task_pause", task_id=child)
            say(f"paused, and {agent} with it")
        except Refused as refused:
            say(f"paused, and could not pause {agent}: {refused}")
        paused = True
        while paused:
            told = await self.call("work_checkpoint", task_id=task)
            self.hear(told)
            paused = told["paused"]
        await self.let_go_on(child)
        say("goes on")

    async def let_go_on(self, child):
        """A pause takes effect at the next safe point of the agent, and only then can it be ended."""
        while (state := (await self.call("task_status", task_id=child))["state"]) not in ENDED:
            if state == "paused":
                return await self.call("task_resume", task_id=child)
            await asyncio.sleep(pace)

    async def work(self, job):
        task, self.steers = job["task_id"], []
        say(f"took {job['title']!r} from {job['requester']}")
        answer = await self.ask(task, "region", "Which region shall the report be about?", FORM)
        region = answer["region"]
        found = await self.have_done(task, "analyst", "Find the trend", f"Find the trend of {region}.", 0.1, 0.5)
        report = await self.have_done(task, "writer", "Write the report", f"{region}: {found}.", 0.5, 0.95)
        too_late = "".join(f" (Came too late: {steer})" for steer in self.steers)
        await self.call("work_complete", task_id=task, text=report + too_late)
        say(f"reported: {report}{too_late}")


async def main():
    # In development the token is the agent's id.
    http = AsyncClient(headers={"authorization": "Bearer lead"}, timeout=60)
    async with http, Client(streamable_http_client(f"{server}/mcp", http_client=http)) as host:
        lead = Lead(host)
        await lead.call("agent_register", name="Lead", description="has reports made")
        say("is waiting for tasks")
        while True:
            for job in (await lead.call("work_next", accept=True, max=1, wait_ms=20_000))["work"]:
                try:
                    await lead.work(job)
                except RuntimeError as error:
                    say(f"gave up: {error}")
                    await lead.host.call_tool("work_fail", {"task_id": job["task_id"], "reason": str(error)})


asyncio.run(main())
