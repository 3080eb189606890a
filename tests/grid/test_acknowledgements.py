"""Acknowledgements, the check-in window, read receipts and unread counts. The receiver is a process of its own."""

import datetime

from conftest import refused, sent, state, taken, texts, until

# Short, because tests wait for it to pass.
WINDOW = 0.3


def shown(agent, task):
    return agent.call("task/get", taskId=task)["task"]


def test_without_an_acknowledgement_in_the_window_the_sender_is_told_no_ack_again_and_again(alice, bob):
    task = sent(alice, bob, checkIn=WINDOW)
    for missed in (1, 2, 3):
        told = alice.told.next("no_ack", taskId=task)
        assert "fromNodeId" not in told
        check_in = shown(alice, task)["checkIn"]
        assert check_in["missed"] >= missed and check_in["message"] == 2
    assert state(alice, task) == "submitted"
    assert shown(alice, task)["acknowledged"] is False
    # The receiver is not told that it is late.
    assert not [one for one in list(bob.told.queue) if one["told"]["kind"] == "no_ack"]


def test_the_default_window_is_thirty_seconds(alice, bob):
    task = shown(alice, sent(alice, bob))
    created, due = (datetime.datetime.fromisoformat(at) for at in (task["createdAt"], task["checkIn"]["dueAt"]))
    assert (due - created).total_seconds() == 30


def test_the_sender_may_wait_and_the_receiver_may_still_acknowledge(alice, bob):
    task = sent(alice, bob, checkIn=WINDOW)
    alice.told.next("no_ack", taskId=task)
    assert bob.call("message/ack", taskId=task)["acknowledged"] is True
    alice.told.next("ack", taskId=task)
    assert shown(alice, task)["acknowledged"] is True and "checkIn" not in shown(alice, task)
    # A window that was still open would have passed before this one.
    other = sent(alice, bob, checkIn=2 * WINDOW)
    assert alice.told.next("no_ack")["taskId"] == other


def test_the_sender_may_send_again_which_opens_another_window(alice, bob):
    task = sent(alice, bob, checkIn=WINDOW, failAfterMisses=1000)
    alice.told.next("no_ack", taskId=task)
    again = alice.call("message/send", taskId=task, message="are you there?", checkIn=WINDOW)
    assert again["task"]["checkIn"] == {**again["task"]["checkIn"], "message": again["sequence"], "missed": 0}
    alice.told.next("no_ack", taskId=task)
    bob.next("message", taskId=task)
    assert texts(bob.call("task/read", taskId=task)["messages"]) == ["count the words", "are you there?"]
    bob.call("message/ack", taskId=task)
    alice.told.next("ack", taskId=task)


def test_the_sender_may_cancel_and_is_not_told_again(alice, bob):
    task = sent(alice, bob, checkIn=WINDOW)
    alice.told.next("no_ack", taskId=task)
    ended = alice.call("task/cancel", taskId=task)["task"]
    assert ended["state"] == "canceled"
    other = sent(alice, bob, checkIn=2 * WINDOW)
    while (told := alice.told.next("no_ack"))["taskId"] != other:
        assert told["sequence"] < ended["sequence"]


def test_after_as_many_misses_as_the_sender_allows_the_task_has_failed(alice, bob):
    task = sent(alice, bob, checkIn=0.1, failAfterMisses=3)
    for _ in range(3):
        alice.told.next("no_ack", taskId=task)
    told = alice.told.next("state", taskId=task)
    assert told["state"] == "failed" and "fromNodeId" not in told
    # Both sides find out, also if they were away.
    for party in (alice, bob):
        messages = party.call("task/read", taskId=task)["messages"]
        assert (messages[-1]["role"], messages[-1]["state"]) == ("system", "failed")
        assert "no_ack" in texts(messages)[-1] or "acknowledge" in texts(messages)[-1]
    assert "send a new task" in refused(bob.call, "message/send", taskId=task, message="sorry").message


def test_the_sender_is_told_ten_times_at_most_unless_it_says_when_to_give_up(alice, bob):
    task = sent(alice, bob, checkIn=0.05)
    for _ in range(10):
        last = alice.told.next("no_ack", taskId=task)
    said = [m for m in alice.call("task/history", taskId=task)["messages"] if m["kind"] == "no_ack"]
    assert len(said) == 10 and said[-1]["sequence"] == last["sequence"]
    assert "not told again" in texts(said)[-1]
    assert shown(alice, task)["checkIn"]["missed"] == 10
    other = sent(alice, bob, checkIn=0.05, failAfterMisses=12)
    for _ in range(12):
        assert alice.told.next("no_ack")["taskId"] == other
    assert alice.told.next("state", taskId=other)["state"] == "failed"


def test_a_window_opens_with_every_message_of_the_sender_and_none_with_the_receivers(alice, bob):
    task = taken(alice, bob)
    bob.call("message/send", taskId=task, message="three")
    assert "checkIn" not in shown(alice, task)
    alice.call("message/send", taskId=task, message="sure?", checkIn=WINDOW)
    alice.told.next("no_ack", taskId=task)
    # A reply is a sign as well.
    bob.call("message/send", taskId=task, message="sure")
    assert shown(alice, task)["acknowledged"] is True and "checkIn" not in shown(alice, task)


def test_an_acknowledgement_is_told_once_for_each_message(alice, bob):
    task = sent(alice, bob)
    assert [bob.call("message/ack", taskId=task)["acknowledged"] for _ in range(3)] == [True, False, False]
    alice.call("message/send", taskId=task, message="and faster")
    assert [bob.call("message/ack", taskId=task)["acknowledged"] for _ in range(2)] == [True, False]
    bob.call("task/cancel", taskId=task)
    kinds = []
    while (told := alice.told.next())["kind"] != "state":
        kinds.append(told["kind"])
    assert kinds == ["ack", "ack"]


def test_the_sender_may_acknowledge_what_it_received_and_nothing_changes(alice, bob):
    task = taken(alice, bob)
    bob.call("message/send", taskId=task, message="three")
    alice.call("task/read", taskId=task)
    before = alice.call("message/send", taskId=task, message="sure?", checkIn=WINDOW)["task"]
    after = alice.call("message/ack", taskId=task)
    assert after["acknowledged"] is False
    # It is no sign of the receiver.
    assert after["task"] == before
    alice.told.next("no_ack", taskId=task)


def test_reading_never_acknowledges(alice, bob):
    task = sent(alice, bob, checkIn=WINDOW)
    bob.call("task/read", taskId=task)
    alice.told.next("read", taskId=task)
    assert shown(alice, task)["acknowledged"] is False
    alice.told.next("no_ack", taskId=task)


def test_reading_gives_the_other_side_a_receipt_and_once(alice, bob):
    task = sent(alice, bob)
    assert shown(alice, task)["readUpTo"] == {"sender": 0, "receiver": 0}
    read = bob.call("task/read", taskId=task)
    assert bob.call("task/read", taskId=task)["messages"] == []
    assert alice.told.next("read", taskId=task)["fromNodeId"] == bob.name
    assert shown(alice, task)["readUpTo"]["receiver"] == read["messages"][-1]["sequence"]
    reply = bob.call("message/send", taskId=task, message="three")
    assert alice.told.next("message")["taskId"] == task
    assert not [told for told in alice.told.waiting() if told["kind"] == "read"]
    alice.call("task/read", taskId=task)
    assert bob.next("read", taskId=task)["fromNodeId"] == alice.name
    assert shown(bob, task)["readUpTo"]["sender"] == reply["sequence"]


def test_what_was_read_before_the_task_was_taken_is_not_read_again_afterwards(alice, bob):
    task = sent(alice, bob)
    alice.call("message/send", taskId=task, message="quickly")
    assert texts(bob.call("task/read", taskId=task)["messages"]) == ["count the words", "quickly"]
    bob.call("message/ack", taskId=task)
    assert bob.call("task/update", taskId=task, state="working")["task"]["unreadCount"] == 0
    assert bob.call("task/read", taskId=task)["messages"] == []


def test_the_history_and_the_task_itself_can_be_looked_at_without_a_receipt(alice, bob):
    task = sent(alice, bob)
    bob.call("task/history", taskId=task)
    bob.call("task/get", taskId=task)
    bob.call("task/list", unread=True)
    assert shown(alice, task)["readUpTo"]["receiver"] == 0 and shown(bob, task)["unreadCount"] == 1
    bob.call("message/ack", taskId=task)
    assert alice.told.next()["kind"] == "ack"


def test_each_side_has_its_own_count_of_what_it_has_not_read(alice, bob):
    task = sent(alice, bob)
    for number in range(3):
        alice.call("message/send", taskId=task, message=f"more {number}")
    assert (shown(alice, task)["unreadCount"], shown(bob, task)["unreadCount"]) == (0, 4)
    read = bob.call("task/read", taskId=task, max=3)
    assert (len(read["messages"]), read["more"], read["task"]["unreadCount"]) == (3, True, 1)
    read = bob.call("task/read", taskId=task, max=3)
    assert (texts(read["messages"]), read["more"], read["task"]["unreadCount"]) == (["more 2"], False, 0)
    bob.call("message/send", taskId=task, message="three")
    alice_unread = shown(alice, task)["unreadCount"]
    assert alice_unread == len(alice.call("task/read", taskId=task)["messages"])
    assert until(lambda: shown(alice, task)["unreadCount"] == 0, "the sender has read everything")


def test_tasks_with_something_to_read_are_listed_oldest_first_and_leave_the_list_when_read(alice, bob):
    tasks = [sent(alice, bob, message=f"task {number}") for number in range(3)]
    assert [task["taskId"] for task in bob.call("task/list", unread=True)["tasks"]] == tasks
    assert [task["taskId"] for task in bob.call("task/list")["tasks"]] == tasks[::-1]
    bob.call("task/read", taskId=tasks[1])
    assert [task["taskId"] for task in bob.call("task/list", unread=True)["tasks"]] == [tasks[0], tasks[2]]
    assert alice.call("task/list", unread=True)["tasks"] == []
