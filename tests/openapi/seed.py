"""What there is in the server before anything is tried: for every form of the console, tasks that it can be sent for."""

import http.client
import itertools
import json
import re

REVISION = "2026-07-28"

# How many tasks each form has for itself: the first that fits uses some of them up.
EACH = 3

_ids = itertools.count(1)


class Agent:
    """An agent that speaks MCP."""

    def __init__(self, address, token):
        self.address, self.token = address, token

    def tool(self, name, **arguments):
        said = {"io.modelcontextprotocol/protocolVersion": REVISION, "io.modelcontextprotocol/clientCapabilities": {}}
        params = {"name": name, "arguments": arguments, "_meta": said}
        headers = {
            "content-type": "application/json", "accept": "application/json, text/event-stream", "authorization": f"Bearer {self.token}",
            "mcp-protocol-version": REVISION, "mcp-method": "tools/call", "mcp-name": name,
        }  # fmt: skip
        connection = http.client.HTTPConnection(self.address, timeout=60)
        body = {"jsonrpc": "2.0", "id": next(_ids), "method": "tools/call", "params": params}
        connection.request("POST", "/mcp", json.dumps(body), headers)
        text = connection.getresponse().read().decode()
        # A stream of events ends with the answer.
        data = [line[5:] for line in text.splitlines() if line.startswith("data:")] or [text]
        result = json.loads(data[-1]).get("result")
        assert result and not result.get("isError"), f"{name}: {text}"
        return result["structuredContent"]


def seeded(server, cookie, worker, planner, ops):
    """The ids to try each path with, and what a form of it has to say beside what its description says."""

    def requested(title):
        return server.task(cookie, title)

    def working(title):
        task = requested(title)
        worker.tool("work_accept", task_id=task)
        return task

    def paused(title):
        task = working(title)
        server.post(f"/tasks/{task}/pause", {}, cookie)
        return task

    def asking(title):
        task = working(title)
        worker.tool("work_ask", task_id=task, questions={"how": {"message": "How?"}}, wait_ms=0)
        return task

    def reported(title):
        task = working(title)
        worker.tool("work_complete", task_id=task, text="three")
        return task

    def proposed(title):
        said = {"agent": "guarded", "title": title, "instructions": "count the words", "queue": True}
        return planner.tool("delegate_task", **said)["task_id"]

    def in_hand(title):
        said = {"agents": ["ops", "other"], "title": title, "instructions": "count the words", "queue": True}
        task = planner.tool("delegate_task", **said)["task_id"]
        ops.tool("work_accept", task_id=task)
        return task

    def offered(title):
        return worker.tool("handoff_offer", to="ops", scope=title, reason="the night is over")["handoff_id"]

    made = {
        "/bulk": working,
        "/tasks/{id}/steer": working,
        "/tasks/{id}/say": working,
        "/tasks/{id}/pause": working,
        "/tasks/{id}/resume": paused,
        "/tasks/{id}/cancel": working,
        "/tasks/{id}/answer": asking,
        "/tasks/{id}/commit": reported,
        "/tasks/{id}/decide": proposed,
        "/tasks/{id}/offer": offered,
        "/tasks/{id}/hand-on": in_hand,
    }
    tasks = {path: [make(f"{path} {number}") for number in range(EACH)] for path, make in made.items()}
    tasks["requested"] = [requested(f"requested {number}") for number in range(EACH)]
    proposals = {one["task_id"]: str(one["approval"]["proposal"]) for one in ops.tool("approval_list")["proposals"]}
    # Beside its own the agent has other sign-ins, that may be ended.
    for _ in range(EACH):
        server.sign_in()
    page = server.page("/sign-ins", cookie)
    rows = [row for row in page.split("<tr>") if "this one" not in row]
    return {
        "tasks": tasks,
        "proposals": proposals,
        "sign_ins": [name for row in rows for name in re.findall(r'name="name" value="([^"]+)"', row)],
        "assets": re.findall(r'"/assets/([^"]+)"', page),
    }
