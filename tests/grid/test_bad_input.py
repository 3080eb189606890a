"""What is wrong is refused, and the refusal says what was expected. Nothing that is refused has an effect."""

import hashlib
import json

import pytest
from agent import Agent, exchange
from conftest import refused

MIB = 1 << 20


@pytest.fixture(scope="module")
def pair(server):
    return Agent(server.address, "anna"), Agent(server.address, "bert")


def answered(agent, body, path=None, **headers):
    """The answer to a body as it is."""
    path = path or f"/grid/a2a/{agent.name}"
    return exchange(agent.address, "POST", path, body, agent.headers() | headers)


def request(method, params=None, **more):
    return json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params or {}, **more}).encode()


NO_REQUEST = {
    "no JSON": (b'{"jsonrpc": "2.0", ', -32700),
    "nothing": (b"", -32700),
    "bytes": (b"\xff\xfe\x00", -32700),
    "half a character": (b'{"jsonrpc": "2.0", "id": 1, "method": "\xc3"}', -32700),
    "a batch": (b'[{"jsonrpc": "2.0", "id": 1, "method": "task/list"}]', -32600),
    "an empty batch": (b"[]", -32600),
    "a text": (b'"task/list"', -32600),
    "a number": (b"7", -32600),
    "null": (b"null", -32600),
    "another version": (b'{"jsonrpc": "1.0", "id": 1, "method": "task/list"}', -32600),
    "no version": (b'{"id": 1, "method": "task/list"}', -32600),
    "no method": (b'{"jsonrpc": "2.0", "id": 1}', -32600),
    "an answer": (b'{"jsonrpc": "2.0", "id": 1, "result": {}}', -32600),
    "params as a list": (b'{"jsonrpc": "2.0", "id": 1, "method": "task/list", "params": [1]}', -32600),
    "an id that is an object": (b'{"jsonrpc": "2.0", "id": {}, "method": "task/list"}', -32600),
    "deep nesting": (
        b'{"jsonrpc": "2.0", "id": 1, "method": "task/list", "params": ' + 5000 * b'{"a":' + b"1" + 5000 * b"}" + b"}",
        None,
    ),
}


@pytest.mark.parametrize("what", NO_REQUEST)
def test_what_is_no_request_is_refused_as_json_rpc_says(pair, what):
    anna, _ = pair
    body, code = NO_REQUEST[what]
    answer = answered(anna, body)
    said = json.loads(answer.body)
    assert 400 <= answer.status < 500 or said["error"]["code"] == -32602
    assert said["jsonrpc"] == "2.0" and code in (None, said["error"]["code"])


@pytest.mark.parametrize("body", [b"{", b"[]", b"7"])
def test_a_refusal_of_what_has_no_id_has_the_id_null(pair, body):
    said = json.loads(answered(pair[0], body).body)
    assert "id" in said and said["id"] is None


def test_an_id_comes_back_as_it_was(pair):
    anna, _ = pair
    for one in (0, -1, 2**53, "seven", "", "ä"):
        assert json.loads(answered(anna, request("task/list", id=one)).body)["id"] == one
        assert json.loads(answered(anna, request("no/such", id=one)).body)["id"] == one


def test_a_notification_has_its_effect_and_no_answer(pair):
    anna, bert = pair
    params = {"to": bert.name, "message": "no answer", "contextId": "notified"}
    answer = answered(anna, json.dumps({"jsonrpc": "2.0", "method": "task/send", "params": params}).encode())
    assert (answer.status, answer.body) == (202, b"")
    assert len(bert.call("task/list", contextId="notified")["tasks"]) == 1
    answer = answered(anna, json.dumps({"jsonrpc": "2.0", "method": "task/send", "params": {"wrong": 1}}).encode())
    assert answer.body == b""


def test_an_unknown_method_is_not_found(pair):
    no = refused(pair[0].call, "task/fly", taskId="x")
    assert no.code == -32601 and "task/fly" in no.message


def test_rpc_discover_describes_every_method_and_its_fields(pair):
    described = {method["name"]: method for method in pair[0].call("rpc.discover")["methods"]}
    assert {"task/send", "message/send", "task/read", "message/ack", "task/update", "task/complete"} <= set(described)
    send = {param["name"]: param["required"] for param in described["task/send"]["params"]}
    assert send["to"] is True and {"message", "checkIn", "sessionKey", "parentTaskId", "contextId"} <= set(send)


TEXT = {"type": "text", "text": "x"}

WRONG_PARAMS = {
    "an unknown field": ({"to": "bert", "message": "x", "prioritty": 1}, "prioritty"),
    "a missing field": ({"message": "x"}, "to"),
    "no message": ({"to": "bert"}, "message"),
    "a message that is a number": ({"to": "bert", "message": 5}, "message"),
    "no parts": ({"to": "bert", "message": {"parts": []}}, "parts"),
    "65 parts": ({"to": "bert", "message": {"parts": 65 * [TEXT]}}, "1 to 64, found 65"),
    "bytes that are no base64": (
        {"to": "bert", "message": {"parts": [TEXT, {"type": "file", "file": {"bytes": "a file!"}}]}},
        "parts[1].file.bytes",
    ),
    "base64 for addresses": (
        {"to": "bert", "message": {"parts": [{"type": "file", "file": {"bytes": "-_-_"}}]}},
        "parts[0].file.bytes",
    ),
    "a kind of part that there is not": (
        {"to": "bert", "message": {"parts": [{"type": "image", "image": "x"}]}},
        "image",
    ),
    "an unknown field in a part": ({"to": "bert", "message": {"parts": [{**TEXT, "colour": "red"}]}}, "colour"),
    "an unknown field in a message": ({"to": "bert", "message": {"parts": [TEXT], "mood": "good"}}, "mood"),
    "data that is a list": ({"to": "bert", "message": {"parts": [{"type": "data", "data": [1]}]}}, "message.parts[0]"),
    "a window that is negative": ({"to": "bert", "message": "x", "checkIn": -1}, "checkIn"),
    "a window that is a text": ({"to": "bert", "message": "x", "checkIn": "soon"}, "checkIn"),
    "no misses": ({"to": "bert", "message": "x", "failAfterMisses": 0}, "failAfterMisses"),
    "a deadline of no time": ({"to": "bert", "message": "x", "deadline": 0}, "deadline"),
    "nobody": ({"to": "", "message": "x"}, "agent"),
    "oneself": ({"to": "anna", "message": "x"}, "other than"),
    "a parent that is not there": ({"to": "bert", "message": "x", "parentTaskId": "nowhere"}, "task"),
    "a long message id": ({"to": "bert", "message": "x", "messageId": "m" * 300}, "256"),
    "a long context": ({"to": "bert", "message": "x", "contextId": "c" * 3000}, "2048"),
}


@pytest.mark.parametrize("what", WRONG_PARAMS)
def test_wrong_params_are_refused_and_the_refusal_names_what_is_wrong(pair, what):
    anna, bert = pair
    before = bert.call("task/list")["tasks"]
    params, word = WRONG_PARAMS[what]
    no = refused(anna.call, "task/send", **params)
    assert no.code == -32602
    assert word in no.message, no.message
    # Nobody needs to know what the server is written in.
    assert "untagged" not in no.message and "usize" not in no.message and "f64" not in no.message, no.message
    assert bert.call("task/list")["tasks"] == before


def test_a_state_that_there_is_not_is_refused_with_those_that_there_are(pair):
    anna, bert = pair
    task = anna.call("task/send", to=bert.name, message="x")["task"]["taskId"]
    no = refused(bert.call, "task/update", taskId=task, state="done")
    assert "done" in no.message and "input_required" in no.message
    refused(bert.call, "task/update", taskId=task)
    refused(bert.call, "task/update", taskId=task, state="submitted")
    assert "both or neither" in refused(bert.call, "message/send", message="x").message
    assert "both or neither" in refused(bert.call, "message/send", message="x", taskId=task, to=anna.name).message
    assert bert.call("task/get", taskId=task)["task"]["state"] == "submitted"


def test_numbers_that_make_no_sense_are_refused_or_bounded(pair):
    anna, bert = pair
    task = anna.call("task/send", to=bert.name, message="x")["task"]["taskId"]
    refused(bert.call, "task/read", taskId=task, max=-1)
    refused(bert.call, "task/read", taskId=task, waitMs=-1)
    refused(bert.call, "task/list", cursor="nonsense")
    assert len(bert.call("task/list", max=10**9)["tasks"]) <= 100
    assert len(bert.call("task/read", taskId=task, max=10**9)["messages"]) == 1


def test_a_message_over_the_limit_is_refused_and_one_below_it_is_not(pair):
    anna, bert = pair
    no = refused(anna.call, "task/send", to=bert.name, message="x" * (MIB + 1))
    assert no.name == "PAYLOAD_TOO_LARGE" and str(MIB) in no.message
    task = anna.call("task/send", to=bert.name, message="x" * (MIB - 1000))["task"]["taskId"]
    assert len(bert.call("task/read", taskId=task)["messages"][0]["parts"][0]["text"]) == MIB - 1000
    assert refused(anna.call, "message/send", taskId=task, message="x" * (MIB + 1)).name == "PAYLOAD_TOO_LARGE"


def test_a_body_over_the_limit_is_not_read(pair):
    anna, bert = pair
    body = request("task/send", {"to": bert.name, "message": "x" * (16 * MIB)})
    try:
        answer = answered(anna, body)
    except (BrokenPipeError, ConnectionResetError):
        # The server has answered, and does not read on.
        return
    assert answer.status == 413


def test_a_body_that_is_not_said_to_be_json_is_refused(pair):
    anna, _ = pair
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        assert answered(anna, request("task/list"), **{"content-type": kind}).status == 415
    assert answered(anna, request("task/list"), **{"content-type": "application/json; charset=utf-8"}).status == 200


def test_other_verbs_and_paths_are_refused(pair):
    anna, _ = pair
    assert exchange(anna.address, "GET", f"/grid/a2a/{anna.name}", None, anna.headers()).status == 405
    assert answered(anna, request("task/list"), path=f"/grid/a2a/{anna.name}/events").status == 405
    assert answered(anna, request("task/list"), path="/grid/a2a").status == 404
    assert answered(anna, request("task/list"), path="/grid/nothing").status == 404


def test_a_web_page_of_somebody_elses_is_refused(pair):
    anna, _ = pair
    assert answered(anna, request("task/list"), origin="https://evil.example").status == 403
    assert answered(anna, request("task/list"), host="evil.example").status == 421


def test_another_agents_node_in_the_path_is_forbidden(pair):
    anna, bert = pair
    answer = answered(anna, request("task/list"), path=f"/grid/a2a/{bert.name}")
    assert answer.status == 403
    # Whether there is such a node is not said.
    nobody = answered(anna, request("task/list"), path="/grid/a2a/nobody-of-that-name")
    assert (nobody.status, nobody.body) == (answer.status, answer.body)


METHODS = {
    "task/get": {},
    "task/read": {},
    "task/history": {},
    "message/ack": {},
    "message/send": {"message": "x"},
    "task/complete": {},
    "task/reject": {},
    "task/cancel": {},
    "task/tree": {},
    "task/steer": {"text": "x"},
    "task/pause": {},
    "task/resume": {},
    "task/update": {"state": "working"},
}


def test_another_agents_task_looks_byte_for_byte_like_one_that_does_not_exist(pair, agent):
    anna, bert = pair
    mallory = agent("mallory")
    task = anna.call("task/send", to=bert.name, message="secret", messageId="known")["task"]["taskId"]
    missing = "00000000-0000-4000-8000-000000000000"
    for method, params in [
        *METHODS.items(),
        ("task/update", {"sessionKey": "k"}),
        ("task/update", {"state": "completed"}),
        ("task/cancel", {"keepSubtasks": True}),
    ]:
        there, gone = (answered(mallory, request(method, {"taskId": one, **params})) for one in (task, missing))
        assert (there.status, there.body) == (gone.status, gone.body), method
        assert {name: value for name, value in there.headers.items() if name != "date"} == {
            name: value for name, value in gone.headers.items() if name != "date"
        }
        assert b"SESSION_NOT_FOUND" in there.body
    for method, params in [("message/send", {"message": "x", "messageId": "known"}), ("task/read", {"waitMs": 10})]:
        there, gone = (answered(mallory, request(method, {"taskId": one, **params})) for one in (task, missing))
        assert (there.status, there.body) == (gone.status, gone.body), method
    for params in ({}, {"unread": True}, {"with": anna.name}):
        assert mallory.call("task/list", **params)["tasks"] == []
    assert mallory.call("task/active", nodeId=anna.name)["task"] is None
    assert anna.call("task/get", taskId=task)["task"]["sequence"] == 2


def token_file(path, *agents):
    """A file of static tokens: everybody's token is its name and its tenant."""
    entry = '[[token]]\nsha256 = "{}"\nagent = "{}"\ntenant = "{}"\n'
    path.touch(mode=0o600)
    path.write_text(
        "\n".join(entry.format(hashlib.sha256(token_of(*one).encode()).hexdigest(), *one) for one in agents)
    )
    return path


def token_of(agent, tenant):
    return f"{agent}-of-{tenant}-0123456789abcdef"


def test_with_static_tokens_a_wrong_token_is_unauthenticated_and_other_tenants_do_not_exist(serve, tmp_path):
    known = [("alice", "acme"), ("bob", "acme"), ("alice", "other"), ("bob", "other")]
    server = serve(tokens=token_file(tmp_path / "tokens.toml", *known))
    alice, bob, foreign, foreign_bob = (
        Agent(server.address, name, token=token_of(name, tenant)) for name, tenant in known
    )
    for agent in (alice, bob, foreign, foreign_bob):
        agent.rest("POST", "/grid/nodes", {"name": agent.name})
    for token in ("alice", token_of("alice", "nowhere"), "", "hand_" + "0" * 64, "x" * 5000):
        stranger = Agent(server.address, "alice", token=token or " ")
        assert refused(stranger.call, "task/list").status == 401
        assert refused(stranger.listen).status == 401
        assert refused(stranger.rest, "GET", "/grid/nodes").status == 401
        assert refused(stranger.rest, "POST", "/grid/search", {"query": "bob"}).status == 401
    task = alice.call("task/send", to="bob", message="count")["task"]["taskId"]
    bob.call("task/read", taskId=task)
    bob.call("message/send", taskId=task, message="three")
    there, gone = (answered(foreign, request("task/get", {"taskId": one})) for one in (task, "0" * 32))
    assert (there.status, there.body) == (gone.status, gone.body)
    assert foreign_bob.call("task/list")["tasks"] == [] and foreign.call("task/list")["tasks"] == []
    assert alice.call("task/complete", taskId=task)["task"]["state"] == "completed"
    # An agent that nobody knows is refused, unless the task may wait for it.
    assert refused(alice.call, "task/send", to="nobody", message="hello").name == "AGENT_NOT_FOUND"
    assert alice.call("task/send", to="nobody", message="hello", queue=True)["task"]["state"] == "submitted"
