"""The life of a task, sentence by sentence of the documentation. The receiver is a process of its own."""

import pytest
from agent import PATIENCE
from conftest import refused, sent, state, taken, texts


def system(agent, task):
    """What the system said to an agent of changes of state, of what it has not read: (state, text)."""
    messages = agent.call("task/read", taskId=task)["messages"]
    return [(message.get("state"), *texts([message])) for message in messages if message["role"] == "system"]


def test_the_typical_flow_from_sending_to_completing(alice, bob):
    answer = alice.call("task/send", to=bob.name, message="count the words")
    task = answer["task"]["taskId"]
    assert answer["task"]["state"] == "submitted"
    assert (answer["task"]["fromNodeId"], answer["task"]["toNodeId"]) == (alice.name, bob.name)

    told = bob.next("task")
    assert (told["taskId"], told["fromNodeId"], told["state"]) == (task, alice.name, "submitted")
    read = bob.call("task/read", taskId=task)
    assert [(m["role"], m["fromNodeId"]) for m in read["messages"]] == [("user", alice.name)]
    assert texts(read["messages"]) == ["count the words"]
    alice.told.next("read", taskId=task, fromNodeId=bob.name)

    assert bob.call("message/ack", taskId=task)["acknowledged"] is True
    alice.told.next("ack", taskId=task, fromNodeId=bob.name)
    assert bob.call("task/update", taskId=task, state="working")["task"]["state"] == "working"
    alice.told.next("state", taskId=task, state="working")

    assert bob.call("message/send", taskId=task, message="three")["task"]["state"] == "input_required"
    alice.told.next("message", taskId=task, fromNodeId=bob.name, state="input_required")
    read = alice.call("task/read", taskId=task)
    assert texts(m for m in read["messages"] if m["role"] == "agent") == ["three"]
    assert alice.call("task/complete", taskId=task)["task"]["state"] == "completed"
    bob.next("state", taskId=task, state="completed", fromNodeId=alice.name)
    assert state(bob, task) == "completed"


def test_the_answer_to_a_send_has_the_sequence_of_the_message_that_was_sent(alice, bob):
    answer = alice.call("task/send", to=bob.name, message="first")
    task = answer["task"]["taskId"]
    second = alice.call("message/send", taskId=task, message="second")
    history = alice.call("task/history", taskId=task)["messages"]
    assert [(m["sequence"], *texts([m])) for m in history] == [
        (answer["sequence"], "first"),
        (second["sequence"], "second"),
    ]
    assert bob.next("task")["sequence"] == answer["sequence"]
    assert bob.next("message")["sequence"] == second["sequence"]


def test_working_is_optional(alice, bob):
    task = sent(alice, bob)
    bob.call("task/read", taskId=task)
    bob.call("message/ack", taskId=task)
    assert bob.call("message/send", taskId=task, message="three")["task"]["state"] == "input_required"
    assert alice.call("task/complete", taskId=task)["task"]["state"] == "completed"


def test_a_conversation_of_many_turns_goes_to_and_fro(alice, bob):
    task = taken(alice, bob)
    for turn in range(5):
        bob.call("message/send", taskId=task, message=f"answer {turn}")
        alice.told.next("message", taskId=task)
        assert texts(m for m in alice.call("task/read", taskId=task)["messages"] if m["role"] == "agent") == [
            f"answer {turn}"
        ]
        assert alice.call("message/send", taskId=task, message=f"and {turn}?")["task"]["state"] == "working"
        bob.next("message", taskId=task)
        assert texts(bob.call("task/read", taskId=task)["messages"]) == [f"and {turn}?"]
        bob.call("message/ack", taskId=task)
    history = alice.call("task/history", taskId=task)["messages"]
    roles = [m["role"] for m in history if m["kind"] in ("task", "message")]
    assert roles == ["user"] + 5 * ["agent", "user"]
    assert [m["sequence"] for m in history] == sorted({m["sequence"] for m in history})


def test_working_can_be_said_with_words_and_the_receiver_goes_on(alice, bob):
    task = taken(alice, bob)
    assert bob.call("message/send", taskId=task, state="working", message="half")["task"]["state"] == "working"
    alice.told.next("message", taskId=task)
    assert texts(m for m in alice.call("task/read", taskId=task)["messages"] if m["role"] == "agent") == ["half"]
    assert bob.call("message/send", taskId=task, message="all")["task"]["state"] == "input_required"


def test_input_required_asks_and_the_senders_message_answers(alice, bob):
    task = taken(alice, bob)
    asked = bob.call("task/update", taskId=task, state="input_required", message="in which language?")
    assert asked["task"]["state"] == "input_required"
    alice.told.next("message", taskId=task, state="input_required")
    assert "in which language?" in texts(alice.call("task/read", taskId=task)["messages"])
    assert alice.call("message/send", taskId=task, message="Finnish")["task"]["state"] == "working"
    bob.next("message", taskId=task)
    assert texts(bob.call("task/read", taskId=task)["messages"]) == ["Finnish"]
    bob.call("message/ack", taskId=task)
    bob.call("message/send", taskId=task, message="kolme")
    assert alice.call("task/complete", taskId=task)["task"]["state"] == "completed"


def test_auth_required_asks_for_permission_and_the_senders_message_gives_it(alice, bob):
    task = taken(alice, bob)
    asked = bob.call("message/send", taskId=task, state="auth_required", message="may I read the archive?")
    assert asked["task"]["state"] == "auth_required"
    told = alice.told.next("message", taskId=task)
    assert told["state"] == "auth_required"
    question = alice.call("task/get", taskId=task)["task"]["questions"]
    assert [(q["text"], q["permission"]) for q in question] == [("may I read the archive?", True)]
    assert alice.call("message/send", taskId=task, message="you may")["task"]["state"] == "working"
    assert alice.call("task/get", taskId=task)["task"].get("questions", []) == []
    bob.next("message", taskId=task)
    assert texts(bob.call("task/read", taskId=task)["messages"]) == ["you may"]


def test_an_answer_must_fit_the_form_that_was_asked_for(alice, bob):
    task = taken(alice, bob)
    form = {"type": "object", "properties": {"pages": {"type": "integer"}}, "required": ["pages"]}
    bob.call("message/send", taskId=task, state="input_required", message="which pages?", schema=form)
    assert alice.call("task/get", taskId=task)["task"]["questions"][0]["schema"] == form
    assert "expected an object" in refused(alice.call, "message/send", taskId=task, message="all").message
    assert state(alice, task) == "input_required"
    answer = {"parts": [{"type": "data", "data": {"pages": 3}}]}
    assert alice.call("message/send", taskId=task, message=answer)["task"]["state"] == "working"


def test_the_receiver_may_reject_a_task_before_it_works_on_it(alice, bob):
    task = sent(alice, bob)
    assert bob.call("task/reject", taskId=task, reason="too many words")["task"]["state"] == "rejected"
    told = alice.told.next("state", taskId=task)
    assert (told["state"], told["fromNodeId"]) == ("rejected", bob.name)
    assert system(alice, task) == [("rejected", f"{bob.name} rejected the task: too many words")]


def test_the_receiver_may_reject_a_task_that_it_works_on(alice, bob):
    task = taken(alice, bob)
    alice.call("task/read", taskId=task)
    assert (
        bob.call("task/update", taskId=task, state="rejected", message="it is not mine")["task"]["state"] == "rejected"
    )
    alice.told.next("state", taskId=task, state="rejected", fromNodeId=bob.name)
    assert system(alice, task) == [("rejected", f"{bob.name} rejected the task: it is not mine")]


def test_the_sender_cannot_reject_nor_fail_nor_work_on_its_own_task(alice, bob):
    task = sent(alice, bob)
    refused(alice.call, "task/reject", taskId=task)
    for wrong in ("rejected", "failed", "working", "input_required", "auth_required", "submitted"):
        refused(alice.call, "task/update", taskId=task, state=wrong, message="mine")
    assert state(bob, task) == "submitted"


def test_the_receiver_says_that_it_failed_and_why(alice, bob):
    task = taken(alice, bob)
    alice.call("task/read", taskId=task)
    assert bob.call("task/update", taskId=task, state="failed", message="the disk broke")["task"]["state"] == "failed"
    alice.told.next("state", taskId=task, state="failed", fromNodeId=bob.name)
    assert system(alice, task) == [("failed", f"{bob.name} failed the task: the disk broke")]


@pytest.mark.parametrize("ends", ["task/reject", "failed", "task/cancel", "task/complete"])
def test_whoever_ends_a_task_is_not_told_of_it_and_the_other_is_told_once(alice, bob, ends):
    task = taken(alice, bob)
    one, other = (alice, bob) if ends == "task/complete" else (bob, alice)
    other.call("task/read", taskId=task)
    one.call("task/read", taskId=task)
    if ends == "failed":
        bob.call("task/update", taskId=task, state="failed", message="why not")
    else:
        one.call(ends, taskId=task, reason="why not")
    assert one.call("task/get", taskId=task)["task"]["unreadCount"] == 0
    assert other.call("task/get", taskId=task)["task"]["unreadCount"] == 1
    assert len(system(other, task)) == 1
    # What comes after it comes after everything that was told of the end.
    last = one.call("task/send", to=other.name, message="another")["task"]["taskId"]
    back = other.call("task/send", to=one.name, message="another")["task"]["taskId"]
    states = {one: [], other: []}
    for party, until in ((one, back), (other, last)):
        stream = party.told if party is alice else party
        while True:
            told = stream.told.get(timeout=PATIENCE)
            told = told["told"] if party is bob else told.data
            if told["taskId"] == until:
                break
            if told["kind"] != "read":
                states[party].append((told["kind"], told.get("state")))
    ended = alice.call("task/get", taskId=task)["task"]["state"]
    assert states[other].count(("state", ended)) == 1
    assert [told for told in states[one] if told[1] == ended] == []


@pytest.mark.parametrize("who", ["sender", "receiver"])
@pytest.mark.parametrize("when", ["submitted", "working", "input_required"])
def test_either_side_may_cancel_at_any_time(alice, bob, who, when):
    task = sent(alice, bob) if when == "submitted" else taken(alice, bob)
    if when == "input_required":
        bob.call("message/send", taskId=task, message="three")
    one, other = (alice, bob) if who == "sender" else (bob, alice)
    other.call("task/read", taskId=task)
    assert one.call("task/cancel", taskId=task, reason="it rains")["task"]["state"] == "canceled"
    (alice.told if other is alice else bob).next("state", taskId=task, state="canceled", fromNodeId=one.name)
    assert system(other, task) == [("canceled", f"{one.name} canceled the task: it rains")]


def test_only_the_sender_completes(alice, bob):
    task = taken(alice, bob)
    bob.call("message/send", taskId=task, message="three")
    for how in (("task/complete", {}), ("task/update", {"state": "completed"})):
        no = refused(bob.call, how[0], taskId=task, **how[1])
        assert no.name == "NOT_AUTHORITY"
    assert state(alice, task) == "input_required"
    assert alice.call("task/update", taskId=task, state="completed")["task"]["state"] == "completed"


def test_a_task_that_the_receiver_has_no_part_in_yet_is_canceled_rather_than_completed(alice, bob):
    task = sent(alice, bob)
    no = refused(alice.call, "task/complete", taskId=task)
    assert no.name == "NOT_TAKEN_PART" and "cancel" in no.message
    assert alice.call("task/cancel", taskId=task)["task"]["state"] == "canceled"


def test_the_sender_may_complete_with_a_reason_which_the_receiver_reads(alice, bob):
    task = taken(alice, bob)
    bob.call("message/send", taskId=task, message="three")
    bob.call("task/read", taskId=task)
    alice.call("task/complete", taskId=task, reason="well done")
    assert system(bob, task) == [("completed", f"{alice.name} completed the task: well done")]


@pytest.mark.parametrize("terminal", ["completed", "failed", "canceled", "rejected"])
def test_nothing_can_be_said_in_a_task_that_has_ended_and_the_refusal_says_to_send_a_new_one(alice, bob, terminal):
    task = taken(alice, bob)
    bob.call("message/send", taskId=task, message="three")
    who = alice if terminal in ("completed", "canceled") else bob
    who.call("task/update", taskId=task, state=terminal, message="enough")
    for party in (alice, bob):
        for method, params in [
            ("message/send", {"message": "one more thing"}),
            ("message/send", {"message": "one more thing", "messageId": "m"}),
            ("message/send", {"message": "one more thing", "state": "completed" if party is alice else "failed"}),
            ("task/update", {"state": "completed" if party is alice else "working"}),
            ("task/update", {"sessionKey": "mine"}),
        ]:
            no = refused(party.call, method, taskId=task, **params)
            assert no.name == "SESSION_ENDED" and "send a new task" in no.message, (method, no)
        # To give up twice is no error; what has come to another end cannot be given up.
        if terminal == "canceled":
            assert party.call("task/cancel", taskId=task)["task"]["state"] == terminal
        else:
            assert refused(party.call, "task/cancel", taskId=task).name == "SESSION_ENDED"
        assert state(party, task) == terminal
    refused(bob.call, "message/ack", taskId=task)
    refused(alice.call, "task/complete", taskId=task)
    refused(alice.call, "task/pause", taskId=task)
    refused(alice.call, "task/steer", taskId=task, text="left")
    # What was said before can still be read, and the conversation goes on in another task.
    assert "three" in texts(bob.call("task/history", taskId=task)["messages"])
    assert sent(alice, bob, message="go on") != task


def test_a_party_that_was_offline_learns_of_every_change_of_state_when_it_reads(alice, agent):
    bob = agent("bob")
    task = alice.call("task/send", to=bob.name, message="count")["task"]["taskId"]
    alice.call("message/send", taskId=task, message="quickly")
    alice.call("task/cancel", taskId=task, reason="too late")
    listed = bob.call("task/list", unread=True)["tasks"]
    assert [(t["taskId"], t["state"], t["unreadCount"]) for t in listed] == [(task, "canceled", 3)]
    messages = bob.call("task/read", taskId=task)["messages"]
    assert [m["role"] for m in messages] == ["user", "user", "system"]
    assert texts(messages) == ["count", "quickly", f"{alice.name} canceled the task: too late"]
    assert messages[2]["state"] == "canceled"
    assert bob.call("task/list", unread=True)["tasks"] == []

    # The other way round: the sender is away while the receiver takes, delivers and rejects.
    carol = agent("carol")
    task = carol.call("task/send", to=bob.name, message="again")["task"]["taskId"]
    bob.call("task/update", taskId=task, state="working")
    bob.call("message/send", taskId=task, message="here")
    bob.call("task/reject", taskId=task, reason="sorry")
    messages = carol.call("task/read", taskId=task)["messages"]
    assert [m.get("state") for m in messages if m["role"] == "system"] == ["working", "rejected"]


def test_a_worker_that_only_follows_the_documentation_completes_a_task_by_itself(alice, elsewhere):
    bob = elsewhere("bob", "worker.py")
    task = alice.call("task/send", to=bob.name, message="hello")["task"]["taskId"]
    for kind in ("read", "ack", "state", "message"):
        alice.told.next(kind, taskId=task)
    assert "conversation-0: hello" in texts(alice.call("task/read", taskId=task)["messages"])
    assert alice.call("task/complete", taskId=task)["task"]["state"] == "completed"
    assert bob.line()["heard"] == "task"
