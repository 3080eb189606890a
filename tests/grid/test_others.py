"""Agents of other people's making at both ends: the SDKs of MACP and MCP, and an agent of the standard library."""

import json
import os
import pathlib
import subprocess
import threading

import pytest
from agent import PATIENCE
from conftest import texts

OTHERS = pathlib.Path(__file__).parent / "others"


class Process:
    """An agent in a process of its own, with the Python that has its SDK. It says in lines of JSON what it saw."""

    def __init__(self, python, script, *arguments):
        command = [os.environ[python], OTHERS / script, *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.overdue = threading.Timer(2 * PATIENCE, self.process.kill)
        self.overdue.start()

    def says(self, name):
        """The next line, which must have this in it."""
        line = self.process.stdout.readline()
        assert line, f"ended with {self.process.wait()} before it said {name}"
        said = json.loads(line)
        assert name in said, said
        return said

    def end(self):
        self.overdue.cancel()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def process():
    started = []

    def start(*arguments):
        started.append(Process(*arguments))
        return started[-1]

    yield start
    for one in started:
        one.end()


@pytest.mark.skipif("MACP_PYTHON" not in os.environ, reason="the MACP SDK could not be installed")
@pytest.mark.skipif("MCP_PYTHON" not in os.environ, reason="the MCP SDK could not be installed")
def test_a_host_on_the_mcp_sdk_calls_a_skill_of_an_agent_on_the_macp_sdk(server, agent, alice, process):
    # An agent is the same on every protocol: it says over HTTP what it can do, and does it over gRPC.
    skill = {"name": "dig", "description": "digs a hole", "inputSchema": {"type": "object"}}
    profile = {"name": "Digger", "skills": [skill]}
    digger = agent("digger")
    digger.rest("POST", "/grid/nodes", profile)
    worker = process("MACP_PYTHON", "macp_agent.py", server.macp, digger.name)
    worker.says("ready")
    host = process("MCP_PYTHON", "mcp_host.py", server.http, alice.name, "caller", "dig")
    host.says("ready")
    assert "Which side?" in host.says("asked")["asked"]
    told = host.says("result")
    assert not told["is_error"], told
    assert told["result"]["asked"] == {"depth": 3} and "left" in json.dumps(told["result"]["side"]), told
    assert "half way" in told["seen"], told
    # What happened is the same to a third, who only looks.
    (task,) = digger.call("task/list")["tasks"]
    assert (task["state"], task["fromNodeId"], task["toNodeId"]) == ("completed", alice.name, digger.name)
    kinds = [message["kind"] for message in digger.call("task/history", taskId=task["taskId"])["messages"]]
    assert kinds == ["task", "state", "progress", "question", "answer", "result"], kinds


@pytest.mark.skipif("MCP_PYTHON" not in os.environ, reason="the MCP SDK could not be installed")
def test_an_agent_of_the_standard_library_works_with_one_in_the_tools_of_an_mcp_host(server, agent, alice, process):
    worker = agent("worker").name
    host = process("MCP_PYTHON", "mcp_host.py", server.http, worker, "worker")
    host.says("ready")
    task = alice.call("task/send", to=worker, message="dig a hole", queue=True)["task"]["taskId"]
    taken = host.says("taken")
    assert (taken["taken"], taken["instructions"]) == (task, "dig a hole")
    alice.told.next("progress", taskId=task)
    alice.told.next("message", taskId=task)
    assert alice.call("task/get", taskId=task)["task"]["state"] == "input_required"
    assert "Which side?" in texts(alice.call("task/read", taskId=task)["messages"])
    alice.call("message/send", taskId=task, message="left")
    assert "left" in json.dumps(host.says("told"))
    host.says("done")
    alice.told.next("message", taskId=task)
    assert alice.call("task/complete", taskId=task)["task"]["state"] == "completed"
