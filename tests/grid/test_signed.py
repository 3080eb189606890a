"""Requests that are signed with an Ed25519 key, in the place of a bearer token."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from agent import Agent, Key, exchange
from conftest import refused, texts, until

LIST = {"jsonrpc": "2.0", "id": 1, "method": "task/list", "params": {}}


def post(server, path, body):
    """A body as it is, and no token."""
    if isinstance(body, dict):
        body = json.dumps(body, ensure_ascii=False).encode()
    return exchange(server.address, "POST", path, body, {"content-type": "application/json"})


def bind(agent, key, **profile):
    """Register an agent, with its token, and bind a key that signs the registration."""
    return agent.rest("POST", "/grid/nodes", key.sign({"name": agent.name, "publicKey": key.public, **profile}))


@pytest.fixture
def signer(agent, server):
    """Makes agents that sign everything, and beside them the same agent with its token."""

    def make(name):
        known, key = agent(name), Key()
        assert bind(known, key)["keys"] == [key.node]
        return Agent(server.address, known.name, key=key), known

    return make


def test_a_whole_task_is_done_with_signatures_and_no_bearer_token(signer):
    (alice, alice_known), (bob, bob_known) = signer("alice"), signer("bob")
    assert alice.token is None and "authorization" not in alice.headers()
    heard, told = bob_known.listen(), alice_known.listen()
    words = 'sign this: "ä", \u2028, \U0001f600, \\ and \t'
    data = {"number": 1.50, "big": 12345678901234567890, "small": 1e-7, "minus": -0.0, "nested": {"b": [], "a": {}}}
    parts = [{"type": "text", "text": words}, {"type": "data", "data": data}]
    # A task can be sent to the node id of a key as well as to the agent's name.
    task = alice.call("task/send", to=bob.key.node, message={"parts": parts})["task"]
    assert (task["fromNodeId"], task["toNodeId"]) == (alice.name, bob.name)
    task = task["taskId"]
    heard.next("task", taskId=task)
    assert bob.call("task/read", taskId=task)["messages"][0]["parts"] == parts
    assert bob.call("message/ack", taskId=task)["acknowledged"] is True
    assert bob.call("task/update", taskId=task, state="working", sessionKey="b")["task"]["state"] == "working"
    bob.call("message/send", taskId=task, message="done")
    told.next("message", taskId=task)
    assert "done" in texts(alice.call("task/read", taskId=task)["messages"])
    assert alice.call("task/complete", taskId=task, reason="thanks")["task"]["state"] == "completed"
    assert bob.rest("POST", f"/grid/nodes/{bob.key.node}/heartbeat", {})["nodeId"] == bob.name
    assert [node["nodeId"] for node in alice.rest("POST", "/grid/search", {"query": bob.name})["nodes"]] == [bob.name]


def test_the_node_of_a_key_is_the_node_of_its_agent(signer):
    alice, known = signer("alice")
    own = known.rest("GET", f"/grid/nodes/{known.name}")
    assert known.rest("GET", f"/grid/nodes/{alice.key.node}") == own
    alice.node = known.name
    assert alice.call("task/list") == known.call("task/list")


def timestamps():
    now = time.time()
    return {
        "whole seconds": int(now),
        "seconds": now,
        "milliseconds": int(now * 1000),
        "RFC 3339": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
        "four minutes old": now - 240,
    }


@pytest.mark.parametrize("form", timestamps())
def test_a_timestamp_may_have_any_usual_form(server, signer, form):
    alice, _ = signer("alice")
    answer = post(server, f"/grid/a2a/{alice.node}", alice.key.sign(LIST, timestamp=timestamps()[form]))
    assert answer.status == 200, answer


def wrong(key):
    """What is refused, and a word of why."""
    now = time.time()
    good = key.sign(LIST)
    digit = "1" if good["signature"][0] == "0" else "0"
    return {
        "a wrong signature": ({**good, "signature": digit + good["signature"][1:]}, "signature"),
        "a signature of nothing": ({**good, "signature": "0" * 128}, "signature"),
        "no signature": ({name: value for name, value in good.items() if name != "signature"}, "signature"),
        "another key's signature": ({**good, "signature": Key().sign(LIST)["signature"]}, "signature"),
        "a changed method": ({**good, "method": "task/get"}, "signature"),
        "changed params": ({**good, "params": {"max": 1}}, "signature"),
        "something added": ({**good, "extra": 1}, "signature"),
        "another timestamp": ({**good, "timestamp": good["timestamp"] + 1}, "signature"),
        "a stale timestamp": (key.sign(LIST, timestamp=now - 360), "timestamp"),
        "a stale timestamp in milliseconds": (key.sign(LIST, timestamp=int((now - 360) * 1000)), "timestamp"),
        "a timestamp of the future": (key.sign(LIST, timestamp=now + 360), "timestamp"),
        "no timestamp": (key.sign(LIST, timestamp=None), "timestamp"),
        "a short nonce": (key.sign(LIST, nonce="ab" * 8), "nonce"),
        "an unknown node": (Key().sign(LIST), "bound"),
        "a node that is no node": (key.sign(LIST, fromNodeId="alice"), "fromNodeId"),
        "no JSON": (b'{"jsonrpc": ', ""),
        "a list": (b"[]", ""),
        "a field twice": (json.dumps(good).replace('"id"', '"nonce": "x", "id"').encode(), ""),
    }


@pytest.mark.parametrize("what", wrong(Key()))
def test_what_is_not_signed_as_it_should_be_is_refused(server, signer, what):
    alice, _ = signer("alice")
    body, why = wrong(alice.key)[what]
    answer = post(server, f"/grid/a2a/{alice.node}", body)
    assert answer.status == 401, answer
    said = json.loads(answer.body)["error"]
    assert said["code"] == "UNAUTHENTICATED" and why in said["message"]


def test_a_nonce_counts_once_also_after_a_restart(serve):
    server = serve()
    alice, key = Agent(server.address, "alice"), Key()
    bind(alice, key)
    first, second = key.sign(LIST), key.sign(LIST)
    path = f"/grid/a2a/{key.node}"
    assert post(server, path, first).status == 200
    again = post(server, path, first)
    assert again.status == 401 and "nonce" in json.loads(again.body)["error"]["message"]
    # The nonce with another request does not count either.
    assert post(server, path, key.sign({**LIST, "id": 2}, nonce=first["nonce"])).status == 401
    server.stop()
    server.start()
    assert post(server, path, first).status == 401
    assert post(server, path, second).status == 200
    server.kill()
    server.start()
    assert [post(server, path, one).status for one in (first, second)] == [401, 401]
    assert post(server, path, key.sign(LIST)).status == 200


def test_many_copies_of_one_request_at_once_count_once(server, signer):
    alice, _ = signer("alice")
    body = alice.key.sign(LIST)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: post(server, f"/grid/a2a/{alice.node}", body).status, range(16)))
    assert sorted(answers) == [200] + 15 * [401]


def test_a_key_that_is_bound_to_another_agent_is_refused_and_nothing_is_registered(agent, signer):
    alice, _ = signer("alice")
    mallory = agent("mallory")
    no = refused(bind, mallory, alice.key)
    assert no.status == 400 and "another agent" in no.message
    assert refused(mallory.rest, "GET", f"/grid/nodes/{mallory.name}").status == 404
    assert alice.call("task/list") == {"tasks": []}


def test_a_key_is_bound_only_by_whoever_can_sign_with_it(agent):
    alice, mallory, key = agent("alice"), agent("mallory"), Key()
    stolen = {"name": mallory.name, "publicKey": key.public}
    for body in (stolen, Key().sign(stolen), {**key.sign(stolen), "signature": "0" * 128}):
        assert refused(mallory.rest, "POST", "/grid/nodes", body).status == 400
    assert refused(mallory.rest, "GET", f"/grid/nodes/{mallory.name}").status == 404
    assert bind(alice, key)["keys"] == [key.node]


def test_what_a_key_signs_does_nothing_in_another_agents_name(server, signer):
    (alice, _), (bob, _) = signer("alice"), signer("bob")
    for path in (f"/grid/a2a/{alice.node}", f"/grid/a2a/{alice.name}"):
        assert post(server, path, bob.key.sign(LIST)).status == 403


def test_a_signed_request_cannot_bind_another_key(signer):
    alice, known = signer("alice")
    other = Key()
    body = json.dumps(alice.key.sign({"name": alice.name, "publicKey": other.public})).encode()
    assert exchange(alice.address, "POST", "/grid/nodes", body, alice.headers()).status in (400, 403)
    assert known.rest("PATCH", f"/grid/nodes/{known.name}", {})["keys"] == [alice.key.node]


def test_a_key_that_is_unbound_counts_no_more(server, signer):
    alice, known = signer("alice")
    assert alice.call("task/list") == {"tasks": []}
    assert known.rest("DELETE", f"/grid/nodes/{alice.key.node}") == {"unbound": True}
    assert refused(alice.call, "task/list").status == 401
    # The agent is still there, and may bind it again.
    bind(known, alice.key)
    assert alice.call("task/list") == {"tasks": []}


def test_a_signed_request_is_short(server, signer):
    alice, _ = signer("alice")
    no = refused(alice.call, "task/send", to="bob", message="x" * 70_000)
    assert no.status == 413 and "bearer token" in no.message


def test_a_request_with_neither_token_nor_signature_is_told_what_to_send(server):
    answer = post(server, "/grid/a2a/alice", LIST)
    assert answer.status == 401
    assert answer.headers.get("www-authenticate") == "Bearer"
    assert "bearer token" in json.loads(answer.body)["error"]["message"]


def test_refused_requests_are_in_the_audit_log_and_no_signature_is(serve):
    server = serve()
    alice, key = Agent(server.address, "alice"), Key()
    bind(alice, key)
    path = f"/grid/a2a/{key.node}"
    good, bad = key.sign(LIST), {**key.sign(LIST), "signature": "ab" * 64}
    assert post(server, path, good).status == 200
    assert [
        post(server, path, body).status for body in (good, bad, key.sign(LIST, timestamp=time.time() - 360))
    ] == 3 * [401]

    def lines():
        found = [line for line in server.audit() if line["event"] == "authentication_failed"]
        return found if len(found) >= 3 else None

    failed = until(lines, "the refusals are in the audit log")
    assert {line["code"] for line in failed} == {"UNAUTHENTICATED"} and {line["face"] for line in failed} == {"grid"}
    reasons = " / ".join(line["reason"] for line in failed)
    assert all(word in reasons for word in ("nonce", "signature", "timestamp"))
    bound = [line for line in server.audit() if line["event"] == "agent_key_bound"]
    assert [(line["agent"], line["to"]) for line in bound] == [("alice", key.node)]
    assert server.stop() == 0
    kept = (server.data / "audit.jsonl").read_text() + server.log.read_text()
    for body in (good, bad):
        assert body["signature"] not in kept and body["signature"][:32] not in kept
