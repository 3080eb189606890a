"""The stream of notifications: what was missed is told once and in order; what cannot be told any more can be read."""

import http.client
import json
import threading

import pytest
from agent import PATIENCE, Agent
from conftest import refused, texts, until


@pytest.fixture
def pair(agent):
    return agent("alice"), agent("bob")


def send(alice, bob, count, task=None):
    """So many messages, the first of which is a task unless there is one: (task, sequence) of each."""
    sent = []
    for number in range(count):
        if task is None:
            answer = alice.call("task/send", to=bob.name, message=f"message {number}")
            task = answer["task"]["taskId"]
            sent.append((task, bob.call("task/history", taskId=task)["messages"][0]["sequence"]))
        else:
            sent.append((task, alice.call("message/send", taskId=task, message=f"message {number}")["sequence"]))
    return sent


def told(stream, count):
    """The next so many notifications, with nothing dropped in between."""
    return [(one["taskId"], one["sequence"]) for one in (stream.next() for _ in range(count))]


def test_a_stream_begins_with_connected_and_every_event_has_an_id(pair):
    alice, bob = pair
    stream = bob.listen()
    connected = stream.event("connected")
    assert connected.data == {"nodeId": bob.name, "resumed": False} and connected.id
    send(alice, bob, 3)
    ids = [stream.event("task_notify").id for _ in range(3)]
    assert all(ids) and len(set(ids)) == 3


def test_the_last_event_id_replays_exactly_what_was_missed_once_and_in_order(pair):
    alice, bob = pair
    stream = bob.listen()
    first = send(alice, bob, 3)
    assert told(stream, 3) == first
    stream.close()
    missed = send(alice, bob, 5, first[0][0]) + send(alice, bob, 4)
    resumed = bob.listen(last=stream.last)
    assert resumed.event("connected").data["resumed"] is True
    assert told(resumed, 9) == missed
    live = send(alice, bob, 2)
    assert told(resumed, 2) == live
    assert resumed.waiting() == []


def test_any_event_can_be_gone_on_from(pair):
    alice, bob = pair
    stream = bob.listen()
    sent = send(alice, bob, 6)
    connected, events = stream.event("connected"), [stream.event("task_notify") for _ in range(6)]
    for place, event in enumerate([connected, *events]):
        again = bob.listen(last=event.id)
        # What happens then comes after what was missed.
        sent += send(alice, bob, 1, sent[0][0])
        assert told(again, len(sent) - place) == sent[place:]


def test_the_id_can_be_said_in_the_address_as_well(pair, server):
    alice, bob = pair
    stream = bob.listen()
    sent = send(alice, bob, 2)
    first = stream.event("task_notify")
    connection = http.client.HTTPConnection(*server.address, timeout=PATIENCE)
    connection.request(
        "GET", f"/grid/a2a/{bob.name}/events?lastEventId={first.id}", headers={"authorization": f"Bearer {bob.name}"}
    )
    answer = connection.getresponse()
    lines = []
    while len([line for line in lines if line.startswith(b"data:")]) < 2:
        lines.append(answer.readline())
    connection.close()
    data = [json.loads(line[5:]) for line in lines if line.startswith(b"data:")]
    assert data[0]["resumed"] is True and (data[1]["taskId"], data[1]["sequence"]) == sent[1]


def test_a_connection_that_is_lost_again_and_again_misses_nothing_and_tells_nothing_twice(pair):
    alice, bob = pair
    stream = bob.listen(pause=0)
    sent = []
    lost = threading.Event()

    def lose():
        while not lost.is_set():
            if stream.ready.is_set():
                stream.lose()
            lost.wait(0.01)

    thread = threading.Thread(target=lose)
    thread.start()
    try:
        while stream.connections < 20 or len(sent) < 100:
            sent += send(alice, bob, 5)
    finally:
        lost.set()
        thread.join()
    assert told(stream, len(sent)) == sent
    assert stream.waiting() == []


@pytest.mark.parametrize(
    "nonsense", ["nonsense", "e", "eeeeeeeeeeeeeeeeeeeeeeeeeee", "-1", "e99999999999", "0", "\xe4\xf6", "e1 e2"]
)
def test_an_id_that_means_nothing_gives_resync_and_then_the_list_of_unread_tasks_is_complete(pair, nonsense):
    alice, bob = pair
    sent = [send(alice, bob, 1)[0] for _ in range(3)]
    stream = bob.listen(last=nonsense)
    assert stream.event("connected").data["resumed"] is False
    resync = stream.event("resync")
    assert resync.id and "task/list" in resync.data["reason"]
    unread = bob.call("task/list", unread=True)["tasks"]
    assert [task["taskId"] for task in unread] == [task for task, _ in sent]
    for task in unread:
        assert texts(bob.call("task/read", taskId=task["taskId"])["messages"]) == ["message 0"]
    # From there on it goes on as any other.
    more = send(alice, bob, 2)
    assert told(stream, 2) == more
    stream.close()
    more = send(alice, bob, 2)
    assert told(bob.listen(last=stream.last), 2) == more


def test_every_connection_of_an_agent_is_told_everything(pair):
    alice, bob = pair
    streams = [bob.listen() for _ in range(20)]
    sent = send(alice, bob, 10)
    for stream in streams:
        assert told(stream, 10) == sent
    # The ids are the same on all of them, so that any can go on where another was.
    assert len({stream.last for stream in streams}) == 1
    for stream in streams[1:]:
        stream.close()
    more = send(alice, bob, 1)
    assert told(streams[0], 1) == told(bob.listen(last=streams[5].last), 1) == more


def test_an_agent_that_was_offline_finds_everything_in_order(pair, agent):
    alice, bob = pair
    carol = agent("carol")
    sent = {}
    for number in range(4):
        for sender in (alice, carol):
            answer = sender.call("task/send", to=bob.name, message=f"{number} of {sender.name}", queue=True)
            task = answer["task"]["taskId"]
            sent[task] = [f"{number} of {sender.name}"]
            for more in range(3):
                sent[task].append(f"{number} of {sender.name} and {more}")
                sender.call("message/send", taskId=task, message=sent[task][-1])
    unread = bob.call("task/list", unread=True)["tasks"]
    assert [task["taskId"] for task in unread] == list(sent)
    assert {task["unreadCount"] for task in unread} == {4}
    for task, said in sent.items():
        read = bob.call("task/read", taskId=task)
        assert texts(read["messages"]) == said
        assert [m["sequence"] for m in read["messages"]] == sorted(m["sequence"] for m in read["messages"])
    assert bob.call("task/list", unread=True)["tasks"] == []


def test_nobody_is_told_of_what_it_did_itself_nor_of_what_others_do(pair, agent):
    alice, bob = pair
    carol = agent("carol")
    streams = {one: one.listen() for one in (alice, bob, carol)}
    task = send(alice, bob, 3)[0][0]
    bob.call("task/read", taskId=task)
    bob.call("message/send", taskId=task, message="done")
    own = carol.call("task/send", to=alice.name, message="hello")["task"]["taskId"]
    kinds = []
    while (one := streams[alice].next())["taskId"] != own:
        assert one["fromNodeId"] == bob.name
        kinds.append(one["kind"])
    assert kinds == ["read", "state", "message"]
    alice.call("task/read", taskId=own)
    assert (streams[carol].next()["taskId"], streams[carol].waiting()) == (own, [])
    heard = [streams[bob].next() for _ in range(3)]
    assert {one["fromNodeId"] for one in heard} == {alice.name} and streams[bob].waiting() == []


def test_an_id_of_another_agents_stream_tells_nothing_of_that_agent(pair, agent):
    alice, bob = pair
    carol = agent("carol")
    theirs = bob.listen()
    first = theirs.last
    send(alice, bob, 3)
    own = send(alice, carol, 2)
    assert told(carol.listen(last=first), 2) == own


def test_another_agents_stream_is_forbidden(pair):
    alice, bob = pair
    stranger = Agent(alice.address, alice.name)
    stranger.node = bob.name
    assert refused(stranger.listen).status == 403


def test_a_server_that_stops_tells_streams_to_come_back_and_they_go_on_where_they_were(serve):
    server = serve()
    alice, bob = Agent(server.address, "alice"), Agent(server.address, "bob")
    stream = bob.listen()
    first = send(alice, bob, 2)
    assert told(stream, 2) == first
    assert server.stop() == 0
    assert "stops" in stream.event("reconnect").data["reason"]
    server.start()
    more = send(alice, bob, 3)
    assert told(stream, 3) == more
    until(lambda: stream.connections == 2, "the stream has connected again")
    stream.close()
