"""Messages: their parts, their ids, and the task that they belong to. The receiver is a process of its own."""

import base64

import pytest
from agent import Agent
from conftest import refused, sent, state, taken, texts

FILE = {
    "type": "file",
    "file": {
        "name": "report.bin",
        "mimeType": "application/octet-stream",
        "bytes": base64.b64encode(bytes(range(256))).decode(),
    },
}
DATA = {"type": "data", "data": {"words": 3, "nested": {"list": [1, 2.5, None, True, "ä"], "empty": {}}}}
TEXT = {"type": "text", "text": 'näin: {"a": 1}\nand a second line \U0001f600'}
JSON_TEXT = {"type": "text", "text": '{"a": 1}'}
PARTS_TEXT = {"type": "text", "text": '{"parts":[{"type":"text","text":"x"}]}'}
PLAIN_FILE = {"type": "file", "file": {"bytes": base64.b64encode(b"plain text").decode()}}
EMPTY_FILE = {"type": "file", "file": {"name": "empty", "bytes": ""}}
PARTS_DATA = {"type": "data", "data": {"parts": [{"type": "text", "text": "x"}]}}
EMPTY_TEXT = {"type": "text", "text": ""}
SPACES = {"type": "text", "text": "  \n "}

SHAPES = {
    "text": [TEXT],
    "data": [DATA],
    "file": [FILE],
    "all three": [TEXT, DATA, FILE],
    "the same twice": [TEXT, TEXT],
    "text that is JSON": [JSON_TEXT],
    "text that looks like parts": [PARTS_TEXT],
    "data that looks like parts": [PARTS_DATA],
    "a file without a name": [PLAIN_FILE],
    "an empty file": [EMPTY_FILE],
    "empty data": [{"type": "data", "data": {}}],
    "an empty text": [EMPTY_TEXT],
    "an empty text among others": [EMPTY_TEXT, DATA],
    "spaces": [SPACES],
    "as many as may be": [{"type": "text", "text": str(number)} for number in range(64)],
}


@pytest.fixture(scope="module")
def pair(server):
    """Two agents of the file, where a test looks at messages alone."""
    return Agent(server.address, "ann"), Agent(server.address, "ben")


@pytest.mark.parametrize("shape", SHAPES)
def test_parts_come_back_as_they_were_sent(pair, shape):
    ann, ben = pair
    parts = SHAPES[shape]
    message = {"role": "user", "parts": parts}
    task = ann.call("task/send", to=ben.name, message=message, title="parts")["task"]["taskId"]
    untitled = ann.call("task/send", to=ben.name, message=message)["task"]["taskId"]
    assert [m["parts"] for m in ben.call("task/read", taskId=untitled)["messages"]] == [parts]
    ann.call("message/send", taskId=task, message=message)
    assert [m["parts"] for m in ben.call("task/read", taskId=task)["messages"]] == [parts, parts]
    # Delivered, asked and answered, and said on the way.
    reply = {"role": "agent", "parts": parts}
    ben.call("message/send", taskId=task, message=reply)
    ann.call("message/send", taskId=task, message=message)
    ben.call("message/send", taskId=task, message=reply, state="input_required")
    ann.call("message/send", taskId=task, message=message)
    ben.call("message/send", taskId=task, message=reply, state="auth_required")
    ann.call("message/send", taskId=task, message=message)
    ben.call("message/send", taskId=task, message=reply, state="working")
    history = [m for m in ann.call("task/history", taskId=task)["messages"] if m["role"] != "system"]
    assert [m["parts"] for m in history] == 9 * [parts]
    assert [m["role"] for m in history] == ["user", "user"] + 3 * ["agent", "user"] + ["agent"]


def test_a_failure_keeps_its_file(pair):
    ann, ben = pair
    task = ann.call("task/send", to=ben.name, message="try")["task"]["taskId"]
    ben.call("task/update", taskId=task, state="failed", message={"parts": [TEXT, FILE]})
    failed = ann.call("task/read", taskId=task)["messages"]
    assert FILE in [part for message in failed for part in message["parts"]]


def test_who_speaks_is_known_whatever_role_a_message_claims(pair):
    ann, ben = pair
    task = ann.call("task/send", to=ben.name, message={"role": "agent", "parts": [TEXT]})["task"]["taskId"]
    ben.call("message/send", taskId=task, message={"role": "user", "parts": [TEXT]})
    roles = [
        (m["role"], m["fromNodeId"]) for m in ann.call("task/history", taskId=task)["messages"] if m["kind"] != "state"
    ]
    assert roles == [("user", ann.name), ("agent", ben.name)]


def test_a_text_is_short_for_a_message_of_one_part(pair):
    ann, ben = pair
    task = ann.call("task/send", to=ben.name, message="short")["task"]["taskId"]
    assert ben.call("task/read", taskId=task)["messages"][0]["parts"] == [{"type": "text", "text": "short"}]


def test_a_task_sent_twice_under_one_message_id_is_one_task(alice, bob):
    first = alice.call("task/send", to=bob.name, message="once", messageId="one")
    again = alice.call("task/send", to=bob.name, message="once", messageId="one")
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert again["task"]["taskId"] == first["task"]["taskId"] and again["sequence"] == first["sequence"]
    assert [task["taskId"] for task in bob.call("task/list")["tasks"]] == [first["task"]["taskId"]]
    assert bob.call("task/read", taskId=first["task"]["taskId"])["messages"][0]["messageId"] == "one"


def test_another_task_under_the_same_message_id_is_refused(alice, bob):
    alice.call("task/send", to=bob.name, message="once", messageId="one")
    assert refused(alice.call, "task/send", to=bob.name, message="twice", messageId="one").name == "DUPLICATE_MESSAGE"
    # Another agent's ids are its own.
    assert bob.call("task/send", to=alice.name, message="twice", messageId="one")["duplicate"] is False


def test_a_message_sent_twice_under_one_id_is_said_once(alice, bob):
    task = sent(alice, bob)
    first = alice.call("message/send", taskId=task, message="more", messageId="m1")
    again = alice.call("message/send", taskId=task, message="more", messageId="m1")
    assert (first["duplicate"], again["duplicate"], again["sequence"]) == (False, True, first["sequence"])
    assert texts(bob.call("task/read", taskId=task)["messages"]) == ["count the words", "more"]
    bob.next("message", taskId=task)
    alice.call("message/send", taskId=task, message="last")
    assert bob.next("message", taskId=task)["sequence"] > first["sequence"]
    reply = bob.call("message/send", taskId=task, message="three", messageId="r1")
    assert bob.call("message/send", taskId=task, message="three", messageId="r1")["sequence"] == reply["sequence"]
    assert (
        len(
            [
                m
                for m in alice.call("task/history", taskId=task)["messages"]
                if m["role"] == "agent" and m["kind"] == "message"
            ]
        )
        == 1
    )


def test_another_text_under_the_same_id_is_refused(alice, bob):
    task = sent(alice, bob)
    alice.call("message/send", taskId=task, message="more", messageId="m1")
    assert refused(alice.call, "message/send", taskId=task, message="less", messageId="m1").name == "DUPLICATE_MESSAGE"
    # The other side's ids are its own.
    assert bob.call("message/send", taskId=task, message="less", messageId="m1")["duplicate"] is False
    assert texts(bob.call("task/read", taskId=task)["messages"]) == ["count the words", "more"]


def test_a_message_sent_again_after_the_task_has_ended_is_still_known(alice, bob):
    task = taken(alice, bob)
    reply = bob.call("message/send", taskId=task, message="three", messageId="r1")
    alice.call("task/complete", taskId=task)
    again = bob.call("message/send", taskId=task, message="three", messageId="r1")
    assert (again["duplicate"], again["sequence"]) == (True, reply["sequence"])


@pytest.mark.parametrize("ended", ["completed", "canceled", "failed", "rejected"])
def test_an_update_that_ends_a_task_can_be_sent_again_under_its_id(alice, bob, ended):
    task = taken(alice, bob)
    bob.call("message/send", taskId=task, message="three")
    who = alice if ended in ("completed", "canceled") else bob
    update = {"taskId": task, "state": ended, "message": "why", "messageId": "end"}
    first = who.call("task/update", **update)
    assert first["task"]["state"] == ended
    # The answer was lost on the way.
    assert who.call("task/update", **update)["task"] == first["task"]


def test_a_steer_sent_twice_under_one_id_is_said_once(alice, bob):
    task = taken(alice, bob)
    for _ in range(2):
        alice.call("task/steer", taskId=task, text="left", messageId="s1")
    assert texts(bob.call("task/read", taskId=task)["messages"]) == ["left"]


def test_a_message_to_an_agent_goes_into_the_newest_task_between_the_two_that_has_not_ended(alice, bob):
    older, newer, ended = (sent(alice, bob, message=f"task {n}") for n in range(3))
    alice.call("task/cancel", taskId=ended)
    assert alice.call("message/send", to=bob.name, message="more")["task"]["taskId"] == newer
    assert bob.call("message/send", to=alice.name, message="done")["task"]["taskId"] == newer
    assert alice.call("task/active", nodeId=bob.name)["task"]["taskId"] == newer
    alice.call("task/complete", taskId=newer)
    assert bob.call("message/send", to=alice.name, message="done")["task"]["taskId"] == older
    alice.call("task/cancel", taskId=older)
    assert alice.call("task/active", nodeId=bob.name)["task"] is None
    no = refused(alice.call, "message/send", to=bob.name, message="more")
    assert "no open task" in no.message
    # Whoever began it.
    back = bob.call("task/send", to=alice.name, message="my turn")["task"]["taskId"]
    assert alice.call("task/active", nodeId=bob.name)["task"]["taskId"] == back
    assert state(alice, back) == "submitted"


def test_tasks_of_a_context_are_found_by_it_and_notifications_name_it(alice, bob):
    trip = [
        alice.call("task/send", to=bob.name, message=f"leg {n}", contextId="trip-7")["task"]["taskId"] for n in range(2)
    ]
    sent(alice, bob, message="something else")
    for party in (alice, bob):
        found = party.call("task/list", contextId="trip-7")["tasks"]
        assert [task["taskId"] for task in found] == trip[::-1]
        assert {task["contextId"] for task in found} == {"trip-7"}
    bob.call("message/ack", taskId=trip[0])
    assert alice.told.next("ack")["contextId"] == "trip-7"


def test_tasks_are_listed_by_state_by_agent_and_page_by_page(alice, bob, agent):
    carol = agent("carol")
    tasks = [sent(alice, bob, message=f"task {n}") for n in range(5)]
    alice.call("task/send", to=carol.name, message="for carol")
    bob.call("task/update", taskId=tasks[1], state="working")
    bob.call("message/send", taskId=tasks[2], message="done")
    bob.call("task/reject", taskId=tasks[3])

    def ids(who, **wanted):
        return [task["taskId"] for task in who.call("task/list", **wanted)["tasks"]]

    assert ids(alice, state="working") == [tasks[1]] and ids(bob, state="input_required") == [tasks[2]]
    assert ids(alice, state="rejected") == [tasks[3]] and ids(alice, state="canceled") == []
    assert ids(bob, state="submitted") == [tasks[4], tasks[0]]
    assert ids(alice, **{"with": bob.name}) == tasks[::-1] and len(ids(alice)) == 6
    found, cursor = [], None
    while True:
        page = bob.call("task/list", max=2, **({"cursor": cursor} if cursor else {}))
        assert len(page["tasks"]) <= 2
        found += [task["taskId"] for task in page["tasks"]]
        if (cursor := page.get("nextCursor")) is None:
            break
    assert found == tasks[::-1]


def test_a_history_can_be_read_page_by_page(alice, bob):
    task = sent(alice, bob, message="0")
    for number in range(1, 12):
        alice.call("message/send", taskId=task, message=str(number))
    said, after = [], 0
    while after is not None:
        page = bob.call("task/history", taskId=task, after=after, max=5)
        said += texts(page["messages"])
        after = page["next"]
    assert said == [str(number) for number in range(12)]
