"""The server is killed again and again in the middle of the work: nothing that it answered is lost or told twice."""

import http.client
import queue
import threading

from agent import PATIENCE, Agent, Refused
from conftest import until

PAIRS = 3
KILLS = 6

# How many messages of each agent have been answered between two kills.
BETWEEN = 25


class Talks:
    """One agent that sends tasks and messages to another, and reads and answers what that one sends. What gets no answer
    it says again under its id, or, every third time, gives up: then it may or may not have been heard."""

    def __init__(self, address, name, other):
        self.agent, self.other = Agent(address, name), other
        self.stream = self.agent.listen(pause=0.01)
        # What it said, by its id: (task, sequence). What it may have said. What it was told.
        self.answered, self.given_up, self.told = {}, set(), []
        self.read, self.read_twice = set(), set()
        self.lost = 0
        self.failure = None
        self.ended, self.deaf = threading.Event(), threading.Event()
        self.threads = [
            threading.Thread(target=self._run, args=[work], daemon=True) for work in (self._talk, self._hear)
        ]

    def _run(self, work):
        try:
            work()
        except Exception as failure:
            self.failure = failure

    def _talk(self):
        task, number = None, 0
        while not self.ended.is_set():
            number += 1
            name = f"{self.agent.name}-{number}"
            if number % 10 == 1:
                task = self._say(name, "task/send", gives_up=False, to=self.other) or task
            else:
                self._say(name, "message/send", taskId=task)

    def _hear(self):
        received = set()
        while not self.deaf.is_set():
            try:
                one = self.stream.told.get(timeout=0.1).data
            except queue.Empty:
                continue
            if one["kind"] not in ("task", "message"):
                continue
            self.told.append((one["taskId"], one["sequence"]))
            if self.ended.is_set():
                continue
            self._read(one["taskId"])
            if one["kind"] == "task":
                received.add(one["taskId"])
            if one["taskId"] in received and one["sequence"] % 3 == 0:
                self._say(f"{one['taskId']} {one['sequence']}", "message/send", taskId=one["taskId"], state="working")

    def _read(self, task):
        """What is read is read once, though the answer may be lost."""
        try:
            messages = self.agent.call("task/read", taskId=task)["messages"]
        except (OSError, http.client.HTTPException):
            return
        except Refused as no:
            assert no.status >= 500, no
            return
        read = {(task, message["sequence"]) for message in messages}
        self.read_twice |= read & self.read
        self.read |= read

    def _say(self, name, method, gives_up=True, **params):
        tries = 0
        while not self.ended.is_set():
            try:
                answer = self.agent.call(method, message=name, messageId=name, **params)
            except (OSError, http.client.HTTPException):
                tries += 1
                self.lost += 1
                if gives_up and self.lost % 3 == 0:
                    break
                # The server is away for a moment.
                self.ended.wait(0.01)
                continue
            except Refused as no:
                # It stops, or cannot tell what became of the message.
                assert no.status >= 500, no
                tries += 1
                self.ended.wait(0.01)
                continue
            assert answer["duplicate"] is False or tries > 0
            self.answered[name] = (answer["task"]["taskId"], answer["sequence"])
            return answer["task"]["taskId"]
        self.given_up.add(name)

    def history(self):
        """Everything that the server has of its tasks, by its author: id to (task, sequence)."""
        said, cursor = {self.agent.name: {}, self.other: {}}, None
        while True:
            page = self.agent.call("task/list", **({"cursor": cursor} if cursor else {}))
            for task in page["tasks"]:
                self._history_of(task["taskId"], said)
            if (cursor := page.get("nextCursor")) is None:
                return said

    def _history_of(self, task, said):
        after = 0
        while after is not None:
            page = self.agent.call("task/history", taskId=task, after=after)
            for message in page["messages"]:
                if message["role"] != "system":
                    (name,) = [part["text"] for part in message["parts"]]
                    author = said[message["fromNodeId"]]
                    assert name not in author, f"{name} is there twice"
                    author[name] = (task, message["sequence"])
            after = page["next"]


def test_what_was_answered_is_told_exactly_once_though_the_server_is_killed_under_load(serve):
    server = serve()
    talks = {}
    for pair in range(PAIRS):
        for one, other in ((f"one-{pair}", f"two-{pair}"), (f"two-{pair}", f"one-{pair}")):
            talks[one] = Talks(server.address, one, other)
    for thread in [thread for one in talks.values() for thread in one.threads]:
        thread.start()

    def is_well():
        failed = [one.failure for one in talks.values() if one.failure]
        assert not failed, failed
        return True

    for _ in range(KILLS):
        goals = {name: len(one.answered) + BETWEEN for name, one in talks.items()}
        until(
            lambda: is_well() and all(len(talks[name].answered) >= goal for name, goal in goals.items()),
            "everybody has gone on",
        )
        server.kill()
        server.start()
    for one in talks.values():
        one.ended.set()
    for one in talks.values():
        one.threads[0].join(PATIENCE)
    # The kills came in the middle of requests, and some of those were given up.
    assert sum(one.lost for one in talks.values()) >= KILLS
    histories = {name: one.history() for name, one in talks.items()}
    # One more for each, which comes after anything that might be told twice.
    for one in talks.values():
        last = one.agent.call("task/send", to=one.other, message="the last")["task"]["taskId"]
        other = talks[one.other]
        until(lambda: is_well() and last in {task for task, _ in other.told}, "the last was told")
    for one in talks.values():
        one.deaf.set()
        one.threads[1].join(PATIENCE)
        assert is_well()
    for one in talks.values():
        other, said = talks[one.other], histories[one.agent.name]
        # Both see the same conversations.
        assert said == histories[one.other]
        mine = said[one.agent.name]
        # What was answered is there once, and beside it only what was given up.
        assert set(one.answered) <= set(mine) <= set(one.answered) | one.given_up
        # The other was told of all of it, once and in order.
        known = {task for task, _ in [*said[one.agent.name].values(), *said[one.other].values()]}
        told = [place for place in other.told if place[0] in known]
        assert len(told) == len(set(told)), "something was told twice"
        assert set(told) == set(mine.values())
        for task in known:
            sequences = [sequence for where, sequence in told if where == task]
            assert sequences == sorted(sequences)
        one.agent.close()
    for one in talks.values():
        assert one.read_twice == set()
        # Each has the number that was answered.
        assert {name: histories[one.agent.name][one.agent.name][name] for name in one.answered} == one.answered
