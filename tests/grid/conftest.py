"""Servers for the tests, and agents in this process and in processes of their own."""

import itertools
import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading
import time

import pytest
from agent import PATIENCE, Agent, Refused

HERE = pathlib.Path(__file__).parent
BINARY = pathlib.Path(os.environ.get("HANDOVER_BINARY", HERE.parents[1] / "target/release/handover"))


def until(is_so, what):
    """Wait for a condition, and say what it was if it does not come."""
    deadline = time.monotonic() + PATIENCE
    while not (found := is_so()):
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.01)
    return found


def refused(call, *args, **params):
    """Why a call is refused."""
    with pytest.raises(Refused) as caught:
        call(*args, **params)
    return caught.value


def texts(messages):
    """What messages say in words."""
    return [part["text"] for message in messages for part in message["parts"] if part["type"] == "text"]


def sent(alice, bob, message="count the words", **more):
    """A task that was just sent, and that the receiver was told of."""
    task = alice.call("task/send", to=bob.name, message=message, **more)["task"]["taskId"]
    assert bob.next("task", taskId=task)["fromNodeId"] == alice.name
    return task


def taken(alice, bob, **more):
    """A task that the receiver works on."""
    task = sent(alice, bob, **more)
    bob.call("task/read", taskId=task)
    bob.call("message/ack", taskId=task)
    bob.call("task/update", taskId=task, state="working")
    alice.told.next("state", taskId=task, state="working")
    return task


def state(agent, task):
    return agent.call("task/get", taskId=task)["task"]["state"]


class Server:
    """One server process on a data directory of its own. Started again, it has the same data and the same ports."""

    def __init__(self, place, tokens=None, **settings):
        place.mkdir(parents=True, exist_ok=True)
        self.data, self.log = place / "data", place / "log"
        self.settings = {"IDENTITY_TOKENS": tokens or "", **settings}
        self.http = self.macp = "127.0.0.1:0"
        self.process = None

    def start(self):
        addresses = ["--http", self.http, "--macp", self.macp, "--admin", "off"]
        command = [BINARY, "serve", "--json", "--data", self.data, *addresses]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HANDOVER_")}
        environment |= {f"HANDOVER_{name}": str(value) for name, value in self.settings.items()}
        with self.log.open("a") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment, text=True)
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        ready = json.loads(line)
        assert ready["ready"] is True
        self.http, self.macp = ready["http"], ready["macp"]
        return self

    @property
    def address(self):
        host, port = self.http.rsplit(":", 1)
        return host, int(port)

    def kill(self):
        """End it in the middle of whatever it does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=PATIENCE)
        self.process.stdout.close()
        return status

    def audit(self):
        """The lines of the audit log."""
        path = self.data / "audit.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Elsewhere:
    """An agent in a process of its own, which says as lines of JSON what it hears and is answered."""

    def __init__(self, script, address, name, *more):
        command = [sys.executable, HERE / script, f"{address[0]}:{address[1]}", name, *more]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.name = name
        self.lines, self.told = queue.Queue(), queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        assert self.line()["ready"] == name

    def _read(self):
        for line in self.process.stdout:
            said = json.loads(line)
            (self.told if "told" in said else self.lines).put(said)

    def line(self):
        """The next thing that it says of itself."""
        return self.lines.get(timeout=PATIENCE)

    def call(self, method, **params):
        """Have it call a method."""
        self.process.stdin.write(json.dumps({"method": method, "params": params}) + "\n")
        self.process.stdin.flush()
        said = self.line()
        if "refused" in said:
            raise Refused(*said["refused"])
        return said["result"]

    def next(self, kind, **fields):
        """The next notification of this kind that it is told; those before it are dropped."""
        deadline = time.monotonic() + PATIENCE
        while True:
            told = self.told.get(timeout=max(0.0, deadline - time.monotonic()))["told"]
            if told["kind"] == kind and all(told.get(name) == value for name, value in fields.items()):
                return told

    def end(self):
        """It ends when nobody speaks to it any more."""
        self.process.stdin.close()
        status = self.process.wait(PATIENCE)
        self.process.stdout.close()
        return status


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """One with the defaults, for every test that needs no other."""
    server = Server(tmp_path_factory.mktemp("grid")).start()
    yield server
    assert server.stop() == 0


@pytest.fixture
def serve(tmp_path):
    """Starts servers that end with the test."""
    servers = []

    def start(**given):
        servers.append(Server(tmp_path / str(len(servers)), **given).start())
        return servers[-1]

    yield start
    for server in servers:
        if server.process.poll() is None:
            server.kill()


numbers = itertools.count(1)


@pytest.fixture
def agent(server):
    """Makes agents whose names nobody else has."""
    agents, number = [], next(numbers)

    def make(name, at=None, **given):
        made = Agent((at or server).address, f"{name}-{number}", **given)
        agents.append(made)
        return made

    yield make
    for one in agents:
        one.close()


@pytest.fixture
def elsewhere(server):
    """Starts agents in processes of their own."""
    agents, number = [], next(numbers)

    def start(name, script="remote.py", *more):
        agents.append(Elsewhere(script, server.address, f"{name}-{number}", *more))
        return agents[-1]

    yield start
    for one in agents:
        assert one.end() == 0


@pytest.fixture
def alice(agent):
    """A sender in this process, who listens."""
    alice = agent("alice")
    alice.told = alice.listen()
    return alice


@pytest.fixture
def bob(elsewhere):
    """A receiver in a process of its own."""
    return elsewhere("bob")
