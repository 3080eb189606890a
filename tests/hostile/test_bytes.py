"""What a caller makes the server hold, in memory and on disk, is counted in bytes."""

import threading
import uuid

import over_mcp as mcp
import pytest
from frames import DATA, WIDE, Two, grpc
from macp.v1 import core_pb2
from macp_sdk.policy import build_task_policy
from over_macp import Agent, code_of, serves_the_honest, working
from over_mcp import Client, Refused
from server import MB, NO_BUDGETS, Server, connect, read_to_end, token_of, until

TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}

# A session of 60 MB.
UPDATES = 80
UPDATE_BYTES = 750_000

# Of an agent, and what the server may need beside it: sessions and pages that are being read, and its allocator.
BUDGET = 64 * MB
SLACK = 320 * MB

SESSION = "0f0e7c2e-6a5b-4f0b-9d6c-5d0d8a8f1c11"


def with_a_session(server, updates):
    _, worker = working(server, SESSION, requester="mallory")
    for number in range(updates):
        worker.update(SESSION, str(number), output=bytes(UPDATE_BYTES))
    return server


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    server = with_a_session(Server(tmp_path_factory.mktemp("large")), UPDATES)
    yield server
    server.stop()


def grown(server, attack):
    """The most memory that the process had more than before, while this was done and is still held, and what it gave."""
    server.forget_peak()
    before = server.memory()
    held = attack(server)
    return server.peak() - before, held


# Planted: pages that are cut by the number of events alone.
def test_one_answer_about_a_large_session_is_a_page(large):
    def read(server):
        return Client(server, "mallory").post(mcp.request("resources/read", {"uri": f"task://{SESSION}"}))[1]

    def timeline(server):
        return Agent(server, "mallory").timeline(SESSION)

    def tool(server):
        return Client(server, "mallory").post(
            mcp.request("tools/call", {"name": "task_timeline", "arguments": {"task_id": SESSION, "max": 1000}})
        )[1]

    for ask in (read, timeline, tool):
        more, answer = grown(large, ask)
        # An event of 750 KB, which is escaped once, or twice where it is text within text.
        assert len(answer) < 12 * MB and more < 64 * MB, (ask.__name__, len(answer), more)


# 100 of them may be on a connection.
STREAMS = 400


def unread(address, begin):
    """Begin streams on connections that are never read from then on."""
    connections = [Two(address, (4, 0)) for _ in range(STREAMS // 100)]
    for connection in connections:
        for _ in range(100):
            begin(connection)
    for connection in connections:
        connection.ping()
    return connections


def follow(server):
    """Follow a large session over MACP."""
    asked = core_pb2.StreamSessionRequest(subscribe_session_id=SESSION).SerializeToString()
    path = "/macp.v1.MACPRuntimeService/StreamSession"
    return unread(server.macp, lambda connection: connection.call(path, token_of("mallory"), grpc(asked)))


def read_pages(server):
    """Ask for pages of a large session over HTTP."""
    return unread(server.http, posting(mcp.request("resources/read", {"uri": f"task://{SESSION}"})))


def listen(server):
    """Subscribe to a task over HTTP, to which large things then happen."""
    params = {"notifications": {"taskIds": [SESSION]}}
    held = unread(server.http, posting(mcp.request("subscriptions/listen", params, None, TASKS)))
    worker = Agent(server, "worker")
    for number in range(10):
        worker.update(SESSION, "x" * UPDATE_BYTES)
    return held


def posting(body):
    headers, encoded = mcp.headers_of(body, token_of("mallory")), mcp.encoded(body)
    return lambda connection: connection.post("/mcp", headers, encoded)


def settled(server):
    """Whether the server takes no more memory: what it could do is done."""
    before = server.memory()
    for _ in range(5):
        serves_the_honest(server)
    return server.memory() <= before


@pytest.mark.parametrize("attack", [follow, read_pages, listen])
def test_what_is_not_read_holds_no_more_than_the_budget(serve, attack):
    def attacked(server, is_enough):
        """The most memory that it had more than before, once it has done what it could and that is enough."""
        with_a_session(server, 4)
        server.forget_peak()
        before = server.memory()
        held = attack(server)
        until(lambda: settled(server) and is_enough(server.peak() - before), "it has done what it could")
        most = server.peak() - before
        for connection in held:
            connection.close()
        until(lambda: server.metric("handover_memory_held_bytes") == 0, "everything was given back")
        return most

    bound = BUDGET + SLACK
    assert attacked(serve(), lambda most: True) < bound
    attacked(serve(**NO_BUDGETS), lambda most: most > 1.5 * bound)


# Planted: a frame that waits for room while the event that it is made of is held.
def test_streams_that_are_read_get_everything_however_many_they_are(serve):
    """What one of them waits for must not be held by another that waits for the same."""
    server = serve()
    session = str(uuid.uuid4())
    _, worker = working(server, session, requester="mallory")
    asked = core_pb2.StreamSessionRequest(subscribe_session_id=session).SerializeToString()
    connections = [Two(server.macp, (4, WIDE)) for _ in range(3)]
    for connection in connections:
        connection.open_wide()
        for _ in range(100):
            connection.call("/macp.v1.MACPRuntimeService/StreamSession", token_of("mallory"), grpc(asked))
    until(lambda: server.metric("handover_streams_open") == 300, "all of them follow")
    worker.update(session, output=bytes(UPDATE_BYTES))
    received = [0, 0, 0]

    def read(number):
        while received[number] < 100 * UPDATE_BYTES:
            kind, _, payload = connections[number].take()
            received[number] += len(payload) if kind == DATA else 0

    threads = [threading.Thread(target=read, args=(number,), daemon=True) for number in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: not any(thread.is_alive() for thread in threads), "all have read everything")
    assert min(received) >= 100 * UPDATE_BYTES, received


def test_a_replay_of_a_large_session_is_refused_or_paid_for(large):
    mallory = Agent(large, "mallory")
    more, answer = grown(large, lambda _: code_of(mallory.what_if_replay, SESSION, build_task_policy("p.q", "same")))
    assert more < 4 * BUDGET, (more, answer[:200])


# Planted: ids of any length (desk, names.rs).
def test_what_a_client_calls_things_is_short(server):
    session = str(uuid.uuid4())
    planner, worker = working(server, session)
    long = "x" * 100_000
    assert code_of(worker.update, session, message_id=long) == "INVALID_ENVELOPE"
    assert code_of(planner.start, long, ["planner", "worker"]) == "INVALID_SESSION_ID"
    assert code_of(planner.start, str(uuid.uuid4()), ["planner", long]) == "INVALID_ENVELOPE"
    assert code_of(planner.get_session, long) in ("SESSION_NOT_FOUND", "INVALID_SESSION_ID")
    client = Client(server, "planner")
    work = {"title": "x", "instructions": "x", "agent": "worker"}
    assert client.why_not("delegate_task", key=long, **work) is not None
    status, text = client.post(mcp.request("tools/list") | {"id": long})
    assert status == 400 and len(text) < 2000, (status, text[:300])
    with pytest.raises(Refused) as refused:
        client.tool("task_status", task_id=long)
    assert len(refused.value.text) < 2000
    # The session id of a handshake revision carries what the client declared.
    declared = {"elicitation": {long: {}}, "experimental": {long: {}}}
    params = {"protocolVersion": "2025-11-25", "capabilities": declared, "clientInfo": {"name": long, "version": long}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    with connect(server.http) as stream:
        stream.sendall(mcp.raw(body, token_of("planner"), connection="close", **{"mcp-protocol-version": "2025-11-25"}))
        assert len(read_to_end(stream).split(b"\r\n\r\n")[0]) < 2000


def test_what_is_stored_of_an_agents_sessions_is_bounded(serve):
    def fill(server):
        session = str(uuid.uuid4())
        planner, worker = working(server, session)
        codes = [code_of(worker.update, session, str(number), output=bytes(100_000)) for number in range(40)]
        # What ends it always fits.
        worker.complete(session)
        planner.commit(session)
        return codes, Agent(server, "honest", "other")

    codes, honest = fill(serve(LIMITS_STORED_PER_AGENT_BYTES=2 * MB))
    assert codes.count("RATE_LIMITED") >= 10, codes
    honest.start(str(uuid.uuid4()), ["honest", "nobody"])
    codes, _ = fill(serve(LIMITS_STORED_PER_AGENT_BYTES=0))
    assert codes.count("RATE_LIMITED") == 0
