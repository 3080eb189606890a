"""A freshly started release binary for the tests, and agents of the published SDK that speak to it."""

import json
import os
import pathlib
import signal
import subprocess

import pytest
from macp_sdk import AuthConfig, MacpClient

BINARY = pathlib.Path(os.environ["HANDOVER_BINARY"])


class Server:
    """One server process on a data directory of its own."""

    def __init__(self, data, tokens=None, settings=None):
        self.data = data
        self.settings = {"IDENTITY_TOKENS": tokens or "", **(settings or {})}
        self.process = None
        self.target = None

    def start(self, macp="127.0.0.1:0"):
        command = [BINARY, "serve", "--data", self.data, "--http", "127.0.0.1:0", "--macp", macp, "--json"]
        environment = {**os.environ, **{f"HANDOVER_{name}": str(value) for name, value in self.settings.items()}}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        ready = json.loads(self.process.stdout.readline())
        assert ready["ready"] is True
        self.target = ready["macp"]
        return self

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)

    def client(self, agent):
        auth = AuthConfig.for_dev_agent(agent)
        return MacpClient(target=self.target, allow_insecure=True, auth=auth, default_timeout=20.0)


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("handover") / "data").start()
    yield server
    assert server.stop() == 0


@pytest.fixture
def own_server(tmp_path):
    server = Server(tmp_path / "data").start()
    yield server
    if server.process.poll() is None:
        server.kill()


@pytest.fixture
def agent(server):
    clients = []

    def make(name):
        client = server.client(name)
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()


def auth(name):
    """The credential of an agent in development mode."""
    return AuthConfig.for_dev_agent(name)
