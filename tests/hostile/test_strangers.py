"""Next to nothing is spent on callers without a good token."""

import over_mcp as mcp
from frames import Two
from over_macp import serves_the_honest
from server import MB, NO_BUDGETS, connect, read_to_end, token_of, until

SEND = "/macp.v1.MACPRuntimeService/Send"

# Six bytes: that a message of 1 MiB follows, and its first.
ANNOUNCED = b"\0\0\x10\0\0x"

CALLS = 2000
AT_A_TIME = 64


def announce(server, path, token=None):
    """Announce 1 MiB in each of 2,000 calls, and never send it."""
    connections = []
    for _ in range(CALLS // 100):
        connection = Two(server.macp)
        for _ in range(100):
            connection.call(path, token, ANNOUNCED)
        connection.ping()
        connections.append(connection)
    return connections


def begin_bodies(server, token, count=300):
    """Begin bodies of 1 MiB over HTTP, and never send their last byte."""
    body = mcp.request("tools/call", {"name": "delegate_task", "arguments": {"title": "x" * MB}})
    sent = mcp.raw(body, token)[:-1]
    streams = [connect(server.http) for _ in range(count)]
    for stream in streams:
        try:
            stream.sendall(sent)
        except OSError:
            # The server has answered, and does not read on.
            pass
    return streams


# Planted: the number of messages of strangers that are read at a time, raised to a million. Then none is refused.
def test_six_bytes_that_announce_a_megabyte_reserve_nothing_and_only_a_few_are_waited_for(server):
    serves_the_honest(server)
    before = server.memory()
    connections = announce(server, SEND)
    waiting = CALLS
    unread = 'handover_requests_unread_total{why="strangers"}'
    until(lambda: server.metric(unread) >= CALLS - AT_A_TIME, "all but a few were refused")
    for connection in connections:
        connection.ping()
        waiting -= len(connection.ended)
    assert waiting == AT_A_TIME
    assert server.memory() - before < 128 * MB
    serves_the_honest(server)
    for connection in connections:
        connection.close()


# Planted: what a message announces, reserved when it is announced.
def test_with_a_token_an_announcement_reserves_nothing_either(server):
    before = server.memory()
    connections = announce(server, SEND, token_of("mallory"))
    assert server.memory() - before < 128 * MB
    serves_the_honest(server)
    for connection in connections:
        connection.close()


def test_bodies_with_a_wrong_token_are_not_read_and_those_of_an_agent_are_bounded(serve):
    server = serve()
    serves_the_honest(server)
    before = server.memory()
    server.forget_peak()
    for stream in begin_bodies(server, "wrong"):
        # Who writes on after the answer may lose it.
        assert read_to_end(stream)[:12] in (b"HTTP/1.1 401", b"")
    assert server.peak() - before < 64 * MB
    streams = begin_bodies(server, token_of("mallory"))
    until(lambda: server.limited("memory") >= 200, "most of them were refused")
    serves_the_honest(server)
    # What is left are 64 MiB, in buffers that have grown by doubling.
    assert server.peak() - before < 256 * MB
    # The same with the limits out of the way: everything that is sent is kept.
    unlimited = serve(**NO_BUDGETS)
    before = unlimited.memory()
    streams += begin_bodies(unlimited, token_of("mallory"))
    until(lambda: unlimited.memory() - before > 300 * MB, "it has far more in memory")
    assert unlimited.limited("memory") == 0


# Planted: the body before the head is looked at.
def test_http_answers_by_the_head_alone(server):
    for token, more, status in [
        ("wrong", {}, 401),
        (token_of("planner"), {"host": "evil.example"}, 421),
        (token_of("planner"), {"origin": "https://evil.example"}, 403),
    ]:
        head = mcp.raw(mcp.request("tools/list"), token, length=MB, connection="close", **more).split(b"\r\n\r\n")[0]
        with connect(server.http) as stream:
            stream.sendall(head + b"\r\n\r\n")
            assert read_to_end(stream).startswith(f"HTTP/1.1 {status} ".encode())
