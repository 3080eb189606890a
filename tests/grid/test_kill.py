"""The server is killed again and again in the middle of the work, and nothing that it answered is lost or told twice."""

import http.client
import threading

from agent import PATIENCE, Agent, Refused
from conftest import until

PAIRS = 3
KILLS = 6

# How many messages each side of a pair has had answered between two kills.
BETWEEN = 25


class Talks:
    """One agent that says something to the other again and again. What gets no answer is said again under its id, or, every
    third time, given up: then it may or may not have been heard."""

    def __init__(self, address, name, other):
        self.agent, self.other = Agent(address, name), other
        self.stream = self.agent.listen(pause=0.01)
        self.answered, self.given_up, self.lost = {}, set(), 0
        self.failure = None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        try:
            number = 0
            while not self.ended.is_set():
                number += 1
                self._say(f"{self.agent.name}-{number}", number % 10 == 1)
        except Exception as failure:
            self.failure = failure

    def _say(self, name, begins):
        if begins:
            method, params = "task/send", {"to": self.other}
        else:
            method, params = "message/send", {"taskId": self.task}
        tries = 0
        while not self.ended.is_set():
            try:
                answer = self.agent.call(method, message=name, messageId=name, **params)
            except (OSError, http.client.HTTPException):
                tries += 1
                self.lost += 1
                if tries == 1 and not begins and self.lost % 3 == 0:
                    self.given_up.add(name)
                    return
                # The server is away for a moment.
                self.ended.wait(0.01)
                continue
            except Refused as no:
                # It is stopping, or not there yet.
                assert no.status >= 500, no
                self.ended.wait(0.01)
                continue
            self.task = answer["task"]["taskId"]
            assert answer["duplicate"] is False or tries > 0
            self.answered[name] = (self.task, answer["sequence"])
            return
        self.given_up.add(name)


def test_what_was_answered_is_told_exactly_once_though_the_server_is_killed_under_load(serve):
    server = serve()
    talks = []
    for pair in range(PAIRS):
        one, two = f"one-{pair}", f"two-{pair}"
        talks += [Talks(server.address, one, two), Talks(server.address, two, one)]
    for one in talks:
        one.thread.start()
    for _ in range(KILLS):
        goal = {one: len(one.answered) + BETWEEN for one in talks}

        def all_have_gone_on():
            failed = [one.failure for one in talks if one.failure]
            assert not failed, failed
            return all(len(one.answered) >= goal[one] for one in talks)

        until(all_have_gone_on, "every agent has gone on")
        server.kill()
        server.start()
    for one in talks:
        one.ended.set()
    for one in talks:
        one.thread.join(PATIENCE)
        assert one.failure is None
    # The kills came in the middle of requests.
    assert sum(one.lost for one in talks) >= KILLS
    by_name = {one.agent.name: one for one in talks}
    for one in talks:
        check(one, by_name[one.other])
    for one in talks:
        one.agent.close()


def check(speaker, listener):
    """What one said, as the server has it and as it told the other."""
    said = {}
    tasks = {task for task, _ in speaker.answered.values()}
    cursor = None
    while True:
        page = speaker.agent.call("task/list", **({"cursor": cursor} if cursor else {}))
        tasks |= {task["taskId"] for task in page["tasks"] if task["fromNodeId"] == speaker.agent.name}
        if (cursor := page.get("nextCursor")) is None:
            break
    for task in tasks:
        after = 0
        while after is not None:
            page = speaker.agent.call("task/history", taskId=task, after=after)
            for message in page["messages"]:
                if message["role"] == "user":
                    (name,) = [part["text"] for part in message["parts"]]
                    assert name not in said, f"{name} is there twice"
                    said[name] = (task, message["sequence"])
            after = page["next"]
    # Everything that was answered is there once, under the number of the answer; beside it only what was given up.
    assert {name: said[name] for name in speaker.answered if name in said} == speaker.answered
    assert set(said) - set(speaker.answered) <= speaker.given_up

    expected = set(said.values())
    told = []

    def heard():
        while listener.stream.told.qsize():
            one = listener.stream.told.get().data
            if one["kind"] in ("task", "message") and one["fromNodeId"] == speaker.agent.name:
                told.append((one["taskId"], one["sequence"]))
        return len(set(told)) >= len(expected)

    until(heard, "everything was told")
    # One more, which comes after anything that might have been told twice.
    speaker.agent.call("task/send", to=listener.agent.name, message="the last")
    last = listener.stream.next("task", fromNodeId=speaker.agent.name)
    assert last["taskId"] not in tasks
    assert len(told) == len(set(told)), "something was told twice"
    assert set(told) == expected
