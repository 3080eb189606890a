"""What is ours beyond the documentation: subtasks, steering, pausing, deadlines and waiting calls."""

import threading
import time

import pytest
from agent import PATIENCE
from conftest import refused, sent, state, taken, texts, until


@pytest.fixture
def carol(agent):
    carol = agent("carol")
    carol.told = carol.listen()
    return carol


def part_of(bob, parent, to, message="a part"):
    return bob.call("task/send", to=to.name, message=message, parentTaskId=parent)["task"]["taskId"]


def test_the_creator_sees_what_was_delegated_under_its_task_and_not_what_is_said_there(alice, bob, carol, agent):
    dave = agent("dave")
    task = taken(alice, bob)
    part = part_of(bob, task, carol)
    carol.call("task/update", taskId=part, state="working")
    deeper = part_of(carol, part, dave, "a part of a part")
    tree = alice.call("task/tree", taskId=task)
    assert tree["more"] is False
    rows = [
        (t["taskId"], t.get("parentTaskId"), t["depth"], t["state"], t["fromNodeId"], t["toNodeId"])
        for t in tree["tasks"]
    ]
    assert rows == [
        (task, None, 0, "working", alice.name, bob.name),
        (part, task, 1, "working", bob.name, carol.name),
        (deeper, part, 2, "submitted", carol.name, dave.name),
    ]
    assert [t["taskId"] for t in alice.call("task/tree", taskId=deeper)["tasks"]] == [deeper]
    assert [t["taskId"] for t in bob.call("task/tree", taskId=part)["tasks"]] == [part, deeper]
    for method in ("task/get", "task/read", "task/history"):
        assert refused(alice.call, method, taskId=part).name == "SESSION_NOT_FOUND"
    # Who was given a part sees nothing of the whole.
    assert refused(dave.call, "task/tree", taskId=part).name == "SESSION_NOT_FOUND"
    assert refused(carol.call, "task/tree", taskId=task).name == "SESSION_NOT_FOUND"
    assert carol.call("task/get", taskId=part)["task"]["parentTaskId"] == task


def test_a_receiver_that_has_acknowledged_may_delegate_without_setting_working_first(alice, bob, carol):
    task = sent(alice, bob)
    bob.call("task/read", taskId=task)
    bob.call("message/ack", taskId=task)
    part = part_of(bob, task, carol)
    assert [t["taskId"] for t in alice.call("task/tree", taskId=task)["tasks"]] == [task, part]


def test_nobody_delegates_under_a_task_that_it_has_no_part_in(alice, bob, carol):
    task = taken(alice, bob)
    hidden = refused(carol.call, "task/send", to=bob.name, message="x", parentTaskId=task)
    missing = refused(carol.call, "task/send", to=bob.name, message="x", parentTaskId="0" * 32)
    assert hidden.error == missing.error


@pytest.mark.parametrize("who", ["sender", "receiver"])
def test_canceling_reaches_everything_below(alice, bob, carol, agent, who):
    dave = agent("dave")
    task = taken(alice, bob)
    part = part_of(bob, task, carol)
    carol.call("task/update", taskId=part, state="working")
    deeper = part_of(carol, part, dave)
    canceled = (alice if who == "sender" else bob).call("task/cancel", taskId=task, reason="all of it")
    assert sorted(canceled["subtasks"]) == sorted([part, deeper])
    carol.told.next("state", taskId=part, state="canceled")
    # The answer came when all of it was done.
    assert state(dave, deeper) == "canceled" and canceled["goingOn"] == []
    said = texts(m for m in carol.call("task/read", taskId=part)["messages"] if m["role"] == "system")
    assert len(said) == 1 and "cancel" in said[0] and "the task canceled" not in said[0], said
    # What the server sent itself has no name that a client could have given.
    assert all(
        "messageId" not in m for m in carol.call("task/history", taskId=part)["messages"] if m["role"] == "system"
    )


def test_subtasks_that_are_kept_go_on(alice, bob, carol):
    task = taken(alice, bob)
    part = part_of(bob, task, carol)
    canceled = alice.call("task/cancel", taskId=task, keepSubtasks=True)
    assert (canceled["subtasks"], canceled["goingOn"]) == ([], [part])
    assert state(bob, task) == "canceled"
    assert carol.call("message/send", taskId=part, message="done")["task"]["state"] == "input_required"
    assert bob.call("task/complete", taskId=part)["task"]["state"] == "completed"


def test_completing_leaves_subtasks_alone(alice, bob, carol):
    task = taken(alice, bob)
    part = part_of(bob, task, carol)
    bob.call("message/send", taskId=task, message="done")
    alice.call("task/complete", taskId=task)
    assert state(carol, part) == "submitted"


def test_a_steer_is_told_and_read_and_asks_for_no_reply(alice, bob):
    task = taken(alice, bob)
    assert alice.call("task/steer", taskId=task, text="mind the commas")["task"]["state"] == "working"
    assert bob.next("steer", taskId=task)["fromNodeId"] == alice.name
    assert bob.call("task/get", taskId=task)["task"]["unreadCount"] == 1
    steer = bob.call("task/read", taskId=task)["messages"]
    assert [(m["kind"], m["role"], *texts([m])) for m in steer] == [("steer", "user", "mind the commas")]
    assert "checkIn" not in alice.call("task/get", taskId=task)["task"]
    assert bob.call("task/read", taskId=task)["messages"] == []
    refused(bob.call, "task/steer", taskId=task, text="no, you")


def test_a_pause_waits_for_the_next_read_and_nothing_is_said_until_the_task_goes_on(alice, bob):
    task = taken(alice, bob)
    assert alice.call("task/pause", taskId=task, reason="lunch")["task"]["paused"] is False
    bob.next("pause", taskId=task)
    read = bob.call("task/read", taskId=task)
    assert read["task"]["paused"] is True and read["task"]["state"] == "working"
    assert any("lunch" in text for text in texts(read["messages"]))
    alice.told.next("state", taskId=task)
    assert alice.call("task/get", taskId=task)["task"]["paused"] is True
    no = refused(bob.call, "message/send", taskId=task, message="three")
    assert no.name == "SESSION_SUSPENDED" and "paused" in no.message
    refused(bob.call, "task/resume", taskId=task)
    assert alice.call("task/resume", taskId=task, reason="back")["task"]["paused"] is False
    bob.next("state", taskId=task)
    assert bob.call("message/send", taskId=task, message="three")["task"]["state"] == "input_required"


def test_a_task_that_nobody_works_on_is_paused_at_once(alice, bob):
    task = sent(alice, bob)
    assert alice.call("task/pause", taskId=task)["task"]["paused"] is True
    bob.next("state", taskId=task)
    assert alice.call("task/resume", taskId=task)["task"] == {
        **alice.call("task/get", taskId=task)["task"],
        "paused": False,
    }


def test_a_paused_task_can_be_canceled_and_its_window_stands_still(alice, bob):
    task = sent(alice, bob, checkIn=1)
    alice.call("task/pause", taskId=task)
    # The window of a task that goes on passes, that of the paused one does not.
    other = sent(alice, bob, checkIn=1.1)
    assert alice.told.next("no_ack")["taskId"] == other
    assert alice.call("task/cancel", taskId=task)["task"]["state"] == "canceled"


def test_a_task_whose_time_is_up_has_failed_and_both_sides_are_told(alice, bob):
    task = sent(alice, bob, deadline=0.4)
    assert "deadline" in bob.call("task/get", taskId=task)["task"]
    for side in (alice.told, bob):
        assert side.next("state", taskId=task)["state"] == "failed"
    for party in (alice, bob):
        last = party.call("task/read", taskId=task)["messages"][-1]
        assert (last["role"], last["state"]) == ("system", "failed")
    assert "send a new task" in refused(bob.call, "message/send", taskId=task, message="late").message


def test_a_task_that_ends_in_time_is_not_failed_by_its_deadline(alice, bob):
    task = taken(alice, bob, deadline=2)
    bob.call("message/send", taskId=task, message="three")
    alice.call("task/complete", taskId=task)
    other = sent(alice, bob, deadline=2)
    alice.told.next("state", taskId=other, state="failed")
    assert state(alice, task) == "completed"


def test_what_is_said_while_the_receiver_reads_is_read_once(alice, bob):
    task = taken(alice, bob)
    alice.call("task/read", taskId=task)

    def steer(number):
        for turn in range(40):
            alice.call("task/steer", taskId=task, text=f"steer {number} {turn}")
            alice.call("message/send", taskId=task, message=f"message {number} {turn}")

    threads = [threading.Thread(target=steer, args=[number]) for number in range(3)]
    for thread in threads:
        thread.start()
    read, alive = [], True
    while alive:
        alive = any(thread.is_alive() for thread in threads)
        read += texts(bob.call("task/read", taskId=task)["messages"])
    expected = [f"{kind} {number} {turn}" for kind in ("steer", "message") for number in range(3) for turn in range(40)]
    assert sorted(read) == sorted(expected)


class Waits:
    """A call in a thread of its own."""

    def __init__(self, agent, method, **params):
        self.answer = None
        self.began = time.monotonic()
        self.thread = threading.Thread(target=self._run, args=[agent, method, params])
        self.thread.start()

    def _run(self, agent, method, params):
        self.answer = agent.call(method, **params)
        self.took = time.monotonic() - self.began

    def result(self):
        self.thread.join(PATIENCE)
        assert self.answer is not None, "the call did not return"
        return self.answer


def test_a_read_that_waits_returns_as_soon_as_there_is_something(alice, bob):
    task = taken(alice, bob)
    alice.call("task/read", taskId=task)
    waits = Waits(alice, "task/read", taskId=task, waitMs=25_000)
    bob.call("message/send", taskId=task, message="three")
    assert texts(waits.result()["messages"]) == ["three"]
    assert waits.took < 10


def test_a_read_that_waits_in_vain_returns_nothing_in_time(alice, bob):
    task = taken(alice, bob)
    alice.call("task/read", taskId=task)
    waits = Waits(alice, "task/read", taskId=task, waitMs=300)
    assert waits.result()["messages"] == []
    assert 0.3 <= waits.took < 10


def test_a_list_that_waits_returns_with_the_first_task_that_has_something_to_read(agent):
    alice, bob = agent("alice"), agent("bob")
    waits = Waits(bob, "task/list", unread=True, waitMs=25_000)
    task = alice.call("task/send", to=bob.name, message="at last")["task"]["taskId"]
    assert [one["taskId"] for one in waits.result()["tasks"]] == [task]
    assert waits.took < 10
    bob.call("task/read", taskId=task)
    waits = Waits(bob, "task/list", unread=True, waitMs=300)
    assert waits.result()["tasks"] == [] and 0.3 <= waits.took < 10


def test_polling_alone_is_enough_for_a_whole_task(agent):
    alice, bob = agent("alice"), agent("bob")
    done = []

    def work():
        task = bob.call("task/list", unread=True, waitMs=25_000)["tasks"][0]["taskId"]
        bob.call("task/read", taskId=task)
        bob.call("message/ack", taskId=task)
        bob.call("message/send", taskId=task, message="three")
        while bob.call("task/read", taskId=task, waitMs=25_000)["task"]["state"] != "completed":
            pass
        done.append(task)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    task = alice.call("task/send", to=bob.name, message="count")["task"]["taskId"]
    while "three" not in texts(alice.call("task/read", taskId=task, waitMs=25_000)["messages"]):
        pass
    alice.call("task/complete", taskId=task)
    thread.join(PATIENCE)
    assert done == [task]
