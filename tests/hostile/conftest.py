"""Servers for the tests: one with the defaults that most of them share, and others with settings of their own."""

import pytest
from server import Server


@pytest.fixture
def serve(tmp_path):
    """Starts servers that end with the test."""
    servers = []

    def start(place=None, **given):
        servers.append(Server(place or tmp_path / str(len(servers)), **given))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One with the defaults for all tests of a file."""
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.stop()
