"""The operator can take a token back, sees what happens, and keeps it to itself."""

import json
import stat
import uuid

import grpc
import pytest
from macp.v1 import core_pb2
from over_macp import Agent, code_of, serves_the_honest, working
from over_mcp import Client, Refused, raw, request
from server import Server, connect, get, read_to_end, run, token_of, until


def the_others():
    return [one for one in Server.AGENTS if one[0] != "mallory"]


def test_a_token_that_is_taken_back_ends_its_streams_and_calls(serve):
    """Within the default of five seconds, without a signal and whether or not the stream has anything to say."""
    soon, never = serve(), serve(IDENTITY_TOKENS_RELOAD_SECONDS=86_400)
    opened = []
    for server in (soon, never):
        signals = Agent(server, "mallory").stub.WatchSignals(core_pb2.WatchSignalsRequest(), metadata=bearer("mallory"))
        wait = request("tools/call", {"name": "work_next", "arguments": {"wait_ms": 60_000}})
        waiting = connect(server.http)
        waiting.sendall(raw(wait, token_of("mallory"), connection="close"))
        until(lambda: server.metric("handover_streams_open") == 2, "both are open")
        server.know(the_others())
        opened.append((signals, waiting))
    signals, waiting = opened[0]
    with pytest.raises(grpc.RpcError) as ended:
        next(signals)
    assert ended.value.code() == grpc.StatusCode.UNAUTHENTICATED
    assert b"UNAUTHENTICATED" in read_to_end(waiting)
    with pytest.raises(Refused) as refused:
        Client(soon, "mallory").ask("tools/list")
    assert refused.value.status == 401
    serves_the_honest(soon)
    # A server that does not look at the file again serves it meanwhile, until it is told to look.
    assert Client(never, "mallory").ask("tools/list")["tools"]
    assert never.metric("handover_streams_open") == 2
    never.signal("SIGHUP")
    until(lambda: never.metric("handover_streams_open") == 0, "both have ended")
    until(lambda: "token_revoked" in [line["event"] for line in never.audit()], "it is written down")


def bearer(agent):
    return [("authorization", f"Bearer {token_of(agent)}")]


# Planted: no handler of the signal, which then ends the process.
def test_sighup_never_ends_the_server(serve):
    server = serve()
    for times in range(1, 4):
        server.signal("SIGHUP")
        until(lambda: server.log.read_text().count("SIGHUP") >= times, "the signal was heard")
    # A broken file changes nothing.
    server.tokens.write_text("[[token]]\nsha256 = 7")
    server.signal("SIGHUP")
    until(lambda: "the old tokens stay" in server.log.read_text(), "it says that the file is broken")
    serves_the_honest(server)
    assert server.process.poll() is None


# Planted: files are made with the mode that the umask leaves.
def test_what_the_server_keeps_is_its_owners_alone_and_it_says_what_is_not(serve):
    server = serve()
    serves_the_honest(server)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [server.data, *server.data.iterdir()]}
    assert modes.pop("data") == 0o700
    assert {"handover.db", "audit.jsonl"} <= modes.keys() and set(modes.values()) == {0o600}, modes
    assert "others than its owner" not in server.log.read_text()
    server.stop()
    opened = [(server.tokens, 0o604), (server.data, 0o755), (server.data / "handover.db", 0o644)]
    for path, mode in opened:
        path.chmod(mode)
    again = serve(place=server.place)
    said = again.log.read_text()
    assert [path for path, mode in opened if f"{path} mode=0{mode:o}"[:-1] in said.replace('"', "")] == [
        path for path, _ in opened
    ], said


# Planted: the routes of the admin listener on the HTTP listener.
def test_only_the_admin_listener_has_metrics_and_details(server):
    assert "handover_limited_total" in get(server.admin, "/metrics")
    assert get(server.http, "/metrics").startswith("HTTP/1.1 404 ")
    details = json.loads(get(server.http, "/readyz").split("\r\n\r\n", 1)[1])
    assert details == {"ready": True}
    assert len(json.loads(get(server.admin, "/readyz").split("\r\n\r\n", 1)[1])) > 1


# Planted: one bound for everybody's lines.
def test_a_flood_of_nobody_does_not_hide_what_an_agent_did(serve):
    server = serve()
    session = str(uuid.uuid4())
    working(server, session)
    nobody = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n"
    with connect(server.http) as flood:
        for _ in range(5):
            flood.sendall(nobody * 1000)
        flood.sendall(nobody.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
        assert read_to_end(flood).count(b"HTTP/1.1 401 ") == 5001
    mallory = Agent(server, "mallory")
    assert code_of(mallory.get_session, session) == "FORBIDDEN"
    # Of the kind that the flood is of.
    mallory.name = "planner"
    assert code_of(mallory.update, session) == "UNAUTHENTICATED"

    def events(name):
        return [line for line in server.audit() if line["event"] == name]

    for name in ("forbidden", "authentication_failed"):
        until(lambda: [line for line in events(name) if line.get("agent") == "mallory"], f"{name} is written")
    assert events("task_delegated") and events("task_accepted")
    assert len(events("authentication_failed")) < 500
    assert server.metric("handover_audit_left_out_total") > 4000
    assert server.metric("handover_authentications_failed_total") == 5002


# Planted: lines without the hash of the one before them.
def test_a_removed_and_a_changed_line_of_the_audit_log_are_found(serve):
    server = serve()
    working(server, str(uuid.uuid4()))
    until(lambda: len(server.audit()) >= 3, "there are lines")
    log = server.data / "audit.jsonl"
    assert run("audit", "verify", log).returncode == 0
    server.stop()
    lines = log.read_text().splitlines(keepends=True)
    removed = lines[:1] + lines[2:]
    changed = [lines[0], lines[1].replace('"time":"2', '"time":"1'), *lines[2:]]
    for forged in (removed, changed):
        assert forged != lines
        log.write_text("".join(forged))
        found = run("audit", "verify", log)
        assert found.returncode == 1 and "audit.jsonl:2:" in found.stdout
    log.write_text("".join(lines))
    assert run("audit", "verify", log).returncode == 0
