"""Session keys: notifications lead to the right conversation without fetching the task."""

from conftest import sent, texts


def test_three_conversations_at_once_are_told_apart_by_the_receivers_own_keys_without_fetching(alice, elsewhere):
    bob = elsewhere("bob", "worker.py")
    tasks = [
        alice.call("task/send", to=bob.name, message=f"task {n}", sessionKey=f"mine-{n}")["task"]["taskId"]
        for n in range(3)
    ]
    replies = {}
    while len(replies) < 3:
        told = alice.told.next("message")
        # The sender finds its own conversation by its own key.
        assert told["senderSessionKey"] == f"mine-{tasks.index(told['taskId'])}"
        replies[told["taskId"]] = told["receiverSessionKey"]
    assert sorted(replies.values()) == [f"conversation-{n}" for n in range(3)]
    # Follow-ups cross each other, and each reply knows what was said in its own conversation alone.
    for turn in range(2):
        for n in (2, 0, 1):
            alice.call("message/send", taskId=tasks[n], message=f"turn {turn} of {n}")
        for _ in range(3):
            told = alice.told.next("message")
            assert told["receiverSessionKey"] == replies[told["taskId"]]
    for n, task in enumerate(tasks):
        said = [
            m
            for m in alice.call("task/history", taskId=task)["messages"]
            if m["role"] == "agent" and m["kind"] == "message"
        ]
        words = [f"task {n}", f"turn 0 of {n}", f"turn 1 of {n}"]
        assert texts(said) == [f"{replies[task]}: {', '.join(words[: turn + 1])}" for turn in range(3)]
    # Each follow-up was known by its key when it was heard of.
    follow_ups = 0
    while follow_ups < 6:
        heard = bob.line()
        if heard["heard"] == "message":
            assert heard["knows"] and heard["key"] == replies[heard["task"]]
            follow_ups += 1


def test_each_side_sets_its_own_key_and_both_are_part_of_every_notification(alice, bob):
    task = sent(alice, bob, sessionKey="a")
    assert bob.call("task/update", taskId=task, sessionKey="b")["task"]["receiverSessionKey"] == "b"
    bob.call("message/ack", taskId=task)
    told = alice.told.next("ack")
    assert (told["senderSessionKey"], told["receiverSessionKey"]) == ("a", "b")
    alice.call("task/update", taskId=task, sessionKey="a2")
    alice.call("message/send", taskId=task, message="more")
    told = bob.next("message")
    assert (told["senderSessionKey"], told["receiverSessionKey"]) == ("a2", "b")
    shown = alice.call("task/get", taskId=task)["task"]
    assert (shown["senderSessionKey"], shown["receiverSessionKey"]) == ("a2", "b")


def test_setting_a_key_changes_no_state_acknowledges_nothing_and_is_told_nobody(alice, bob):
    task = sent(alice, bob)
    before = alice.call("task/get", taskId=task)["task"]
    after = bob.call("task/update", taskId=task, sessionKey="b")["task"]
    assert (after["state"], after["acknowledged"]) == ("submitted", False)
    assert after["checkIn"] == before["checkIn"]
    bob.call("message/ack", taskId=task)
    assert alice.told.next()["kind"] == "ack"


def test_an_empty_key_takes_it_away(alice, bob):
    task = sent(alice, bob, sessionKey="a")
    assert "senderSessionKey" not in alice.call("task/update", taskId=task, sessionKey="")["task"]
    bob.call("message/ack", taskId=task)
    assert alice.told.next("ack")["senderSessionKey"] is None


def test_a_key_and_a_state_can_be_set_at_once(alice, bob):
    task = sent(alice, bob)
    shown = bob.call("task/update", taskId=task, sessionKey="b", state="working")["task"]
    assert (shown["state"], shown["receiverSessionKey"]) == ("working", "b")
    assert alice.told.next("state")["receiverSessionKey"] == "b"
