"""Agents on every face that send each request to any node, and a record of what they asked and heard.

What gets no answer is said again under its id, at another node, until it has one. Everything that changes something carries a mark of
its own, by which it is found in the log afterwards.
"""

import contextlib
import http.client
import itertools
import logging
import queue
import random
import threading
import time
import uuid
from dataclasses import dataclass, field

import agent as grid
import grpc
from macp.modes.task.v1 import task_pb2
from macp_sdk import AuthConfig, MacpAckError, MacpClient, MacpSdkError
from macp_sdk.constants import MODE_TASK
from macp_sdk.envelope import build_commitment_payload, build_envelope, build_session_start_payload
from over_mcp import Client, Refused

# It warns of every connection without TLS.
logging.getLogger("macp_sdk").setLevel(logging.ERROR)

# How long a request may take before it is sent again, elsewhere; and how long it is sent again.
REQUEST_SECONDS = 6.0
PERSIST_SECONDS = 90.0

# Why a request may do better in a while.
PASSING = {"STORE_UNAVAILABLE", "STOPPING", "BUSY", "SERVER_UNREACHABLE", "TOO_MANY_CONNECTIONS", "TIMEOUT", "INTERNAL_ERROR", None}


# What ends a task.
ENDS = ("committed", "cancelled", "expired")


class Unanswered(Exception):
    """A request had no answer that says what became of it."""


class Refusal(Exception):
    """The server said no, and means it."""

    def __init__(self, code):
        super().__init__(code)
        self.code = code


@dataclass
class Write:
    """Something that was asked for: under its mark it is in the log of its session once, or never if it was refused."""

    session: str
    mark: str
    asked: float
    heard: float
    refused: str | None = None
    tries: int = 1


@dataclass
class Read:
    """What was shown of a session: the marks, in order."""

    session: str
    asked: float
    heard: float
    events: list


@dataclass
class Record:
    """What everybody asked and heard."""

    writes: list = field(default_factory=list)
    reads: list = field(default_factory=list)
    # Who was told that it has a task that several wanted: session to agents.
    won: dict = field(default_factory=dict)
    # Session to requester and face.
    sessions: dict = field(default_factory=dict)
    failures: list = field(default_factory=list)
    unanswered: int = 0
    ended: int = 0


class Caller:
    """One agent, that sends each request to any of the nodes."""

    def __init__(self, nodes, name, record):
        self.nodes, self.name, self.record = nodes, name, record
        self.macp_clients = {}

    def macp(self, node, kind, session, message_id, payload):
        if node.name not in self.macp_clients:
            auth = AuthConfig.for_dev_agent(self.name)
            target = "{}:{}".format(*node.macp)
            self.macp_clients[node.name] = MacpClient(
                target=target, allow_insecure=True, auth=auth, default_timeout=REQUEST_SECONDS
            )
        said = {"sender": self.name, "message_id": message_id, "payload": payload.SerializeToString()}
        envelope = build_envelope(mode=MODE_TASK, message_type=kind, session_id=session, **said)
        try:
            return self.macp_clients[node.name].send(envelope)
        except MacpAckError as no:
            refuse(no.failure.code)
        except (MacpSdkError, grpc.RpcError) as lost:
            refuse(getattr(lost, "macp_code", None) or None)

    def mcp(self, node, tool, key=None, **arguments):
        client = Client(node, self.name)
        client.token, client.connection.timeout = self.name, REQUEST_SECONDS
        try:
            return client.tool(tool, key, **arguments)
        except Refused as no:
            refuse(no.code)
        except (OSError, http.client.HTTPException, ValueError) as lost:
            raise Unanswered(str(lost)) from None
        finally:
            client.connection.close()

    def grid(self, node, method, **params):
        caller = grid.Agent(node.http, self.name)
        try:
            return caller.call(method, **params)
        except grid.Refused as no:
            refuse(no.name)
        except (OSError, http.client.HTTPException, ValueError) as lost:
            raise Unanswered(str(lost)) from None

    def persist(self, call):
        """Ask until there is an answer: that, when the answered try began and ended, and how many there were."""
        deadline = time.monotonic() + PERSIST_SECONDS
        for tries in itertools.count(1):
            node, asked = random.choice(self.nodes), time.monotonic()
            try:
                return call(node), asked, time.monotonic(), tries
            except Unanswered:
                self.record.unanswered += 1
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def write(self, session, mark, call):
        """Something that has one effect, however often it is sent. Says what was answered."""
        begun = time.monotonic()
        refused = answer = None
        try:
            answer, _, heard, tries = self.persist(call)
        except Refusal as no:
            refused, heard, tries = no.code, time.monotonic(), 0
        self.record.writes.append(Write(session, mark, begun, heard, refused, tries))
        if refused:
            raise Refusal(refused)
        return answer

    def look(self, session):
        """Everything that happened in a session, as a node shows it now."""
        shown, asked, heard, _ = self.persist(lambda node: self.mcp(node, "task_timeline", task_id=session, max=500))
        self.record.reads.append(Read(session, asked, heard, shown["events"]))
        return shown


def refuse(code):
    if code in PASSING or code.startswith("UNAVAILABLE"):
        raise Unanswered(str(code))
    raise Refusal(code)


class Life(threading.Thread):
    """Lives one task after the other until it is told to end; the last one is lived to its end."""

    ids = itertools.count(1)

    def __init__(self, nodes, record, ending):
        super().__init__(daemon=True)
        self.number = next(Life.ids)
        self.nodes, self.record, self.ending = nodes, record, ending
        self.marks = (f"mark-{self.number}-{one}-" for one in itertools.count(1))
        who = ("planner", "worker", "helper")
        self.planner, self.worker, self.helper = (Caller(nodes, f"{name}-{self.number}", record) for name in who)

    def run(self):
        try:
            while not self.ending.is_set():
                self.live()
                self.record.ended += 1
        except Exception as failure:
            self.record.failures.append(f"{type(self).__name__} {self.number}: {failure!r}")
            raise

    def begun(self, session, face):
        self.record.sessions[session] = (self.planner.name, face)


class OverMacp(Life):
    """A task that two agents want, over MACP."""

    def live(self):
        session = str(uuid.uuid4())
        names = [self.planner.name, self.worker.name, self.helper.name]
        start = build_session_start_payload(intent="x", participants=names, ttl_ms=600_000)
        # A second start of a session is refused, and only we know its id.
        with contextlib.suppress(Refusal):
            self._say(self.planner, session, "SessionStart", start, marked=False)
        self.begun(session, "macp")
        request = task_pb2.TaskRequestPayload(task_id="t1", title="dig", instructions=next(self.marks))
        self._say(self.planner, session, "TaskRequest", request, request.instructions)
        winner = self._race(session)
        for _ in range(5):
            update = task_pb2.TaskUpdatePayload(task_id="t1", status="going", message=next(self.marks))
            self._say(winner, session, "TaskUpdate", update, update.message)
            random.choice([self.planner, winner]).look(session)
        done = task_pb2.TaskCompletePayload(task_id="t1", assignee=winner.name, summary=next(self.marks), output=b"x")
        self._say(winner, session, "TaskComplete", done, done.summary)
        commit = build_commitment_payload(
            action="task.completed", authority_scope="s", reason=next(self.marks), outcome_positive=True
        )
        self._say(self.planner, session, "Commitment", commit, commit.reason)

    def _say(self, who, session, kind, payload, mark=None, marked=True):
        message_id = str(uuid.uuid4())
        call = lambda node: who.macp(node, kind, session, message_id, payload)  # noqa: E731
        return who.write(session, mark, call) if marked else who.persist(call)

    def _race(self, session):
        """Both accept at once: exactly one has the task."""
        told = queue.Queue()

        def accept(who):
            payload = task_pb2.TaskAcceptPayload(task_id="t1", assignee=who.name, reason=next(self.marks))
            try:
                self._say(who, session, "TaskAccept", payload, payload.reason)
                told.put((who, None))
            except Exception as no:
                told.put((who, no))

        # A generator belongs to one thread at a time.
        marks, self.marks = self.marks, iter([next(self.marks), next(self.marks)])
        both = [threading.Thread(target=accept, args=[who], daemon=True) for who in (self.worker, self.helper)]
        for one in both:
            one.start()
        heard = [told.get(timeout=2 * PERSIST_SECONDS) for _ in both]
        self.marks = marks
        for _, no in heard:
            if no is not None and not isinstance(no, Refusal):
                raise no
        won = [who for who, no in heard if no is None]
        self.record.won[session] = [who.name for who in won]
        return won[0]


class OverMcp(Life):
    """A task with steers, over MCP."""

    def live(self):
        key, title = str(uuid.uuid4()), next(self.marks)
        asked = time.monotonic()
        begin = {"agent": self.worker.name, "title": title, "instructions": "x", "queue": True}
        told, *_ = self.planner.persist(lambda node: self.planner.mcp(node, "delegate_task", key, **begin))
        session = told["task_id"]
        self.begun(session, "mcp")
        self.record.writes.append(Write(session, title, asked, time.monotonic()))
        self._do(self.worker, session, "work_accept")
        for step in range(6):
            mark = next(self.marks)
            self._do(self.worker, session, "work_update", mark, message=mark)
            if step % 2:
                mark = next(self.marks)
                self._do(self.planner, session, "task_steer", mark, message=mark)
            random.choice([self.planner, self.worker]).look(session)
        mark = next(self.marks)
        self._do(self.worker, session, "work_complete", mark, text=mark)
        shown = self.planner.look(session)
        assert shown["status"] == "completed", shown

    def _do(self, who, session, tool, mark=None, **arguments):
        key = str(uuid.uuid4())
        call = lambda node: who.mcp(node, tool, key, task_id=session, **arguments)  # noqa: E731
        return who.write(session, mark, call) if mark else who.persist(call)


class OverGrid(Life):
    """A conversation, over Grid; what is told of it is heard over streams that move from node to node."""

    def __init__(self, *given):
        super().__init__(*given)
        self.ears = [Ears(self.nodes, who.name) for who in (self.planner, self.worker)]

    def live(self):
        mark = next(self.marks)
        asked = time.monotonic()
        send = {"to": self.worker.name, "message": mark, "messageId": str(uuid.uuid4())}
        told, *_ = self.planner.persist(lambda node: self.planner.grid(node, "task/send", **send))
        session = told["task"]["taskId"]
        self.begun(session, "grid")
        self.record.writes.append(Write(session, mark, asked, time.monotonic()))
        for step in range(6):
            who = (self.worker, self.planner)[step % 2]
            how = {"state": "working"} if who is self.worker else {}
            self._say(who, session, "message/send", **how)
            random.choice([self.planner, self.worker]).look(session)
        self._say(self.worker, session, "message/send")
        # It has no id: one that was not answered may have been done.
        with contextlib.suppress(Refusal):
            self.planner.persist(lambda node: self.planner.grid(node, "task/complete", taskId=session))
        shown = self.planner.look(session)
        assert shown["events"][-1]["kind"] == "committed", shown

    def _say(self, who, session, method, **how):
        mark, message_id = next(self.marks), str(uuid.uuid4())
        how = {"taskId": session, "message": mark, "messageId": message_id, **how}
        return who.write(session, mark, lambda node: who.grid(node, method, **how))


class Ears:
    """The stream of a Grid agent, which goes on at another node whenever it ends, and is ended now and then."""

    def __init__(self, nodes, name):
        self.nodes, self.name = nodes, name
        self.stream = Elsewhere(nodes, name).listen(pause=0.05)

    def move(self):
        self.stream.lose()

    def told(self):
        """The messages that were told, as (task, sequence), in the order in which they were."""
        said = (event.data for event in self.stream.waiting_events())
        return [(one["taskId"], one["sequence"]) for one in said if one["kind"] in ("task", "message")]


class Elsewhere(grid.Agent):
    """A Grid agent that is at another node each time that somebody wants to know."""

    def __init__(self, nodes, name):
        self.nodes = nodes
        super().__init__(None, name)

    @property
    def address(self):
        return random.choice(self.nodes).http

    @address.setter
    def address(self, _):
        pass

    def listen(self, last=None, **how):
        self.streams.append(Moving(self, last, **how))
        return self.streams[-1]


class Moving(grid.Stream):
    """A refusal that may pass is no reason to end."""

    def _read(self):
        with contextlib.suppress(grid.Refused):
            super()._read()

    def waiting_events(self):
        with self.told.mutex:
            return list(self.told.queue)


class Follower(threading.Thread):
    """Reads what happens in a few sessions as it happens, each page from another node."""

    def __init__(self, nodes, record, ending):
        super().__init__(daemon=True)
        self.nodes, self.record, self.ending = nodes, record, ending
        self.read = {}

    def run(self):
        try:
            while not self.ending.is_set():
                known = [one for one in list(self.record.sessions.items()) if one[0] not in self.read]
                if not known:
                    time.sleep(0.05)
                    continue
                session, (requester, _) = known[-1]
                self._follow(Caller(self.nodes, requester, self.record), session)
        except Exception as failure:
            self.record.failures.append(f"a follower: {failure!r}")
            raise

    def _follow(self, caller, session):
        events = self.read.setdefault(session, [])
        while True:
            after = events[-1]["seq"] if events else 0
            asked = {"task_id": session, "after": after, "wait_ms": 500}
            page, *_ = caller.persist(lambda node: caller.mcp(node, "task_timeline", **asked))  # noqa: B023
            events += page["events"]
            if any(event["kind"] in ENDS for event in page["events"]):
                return
            if self.ending.is_set() and not page["events"]:
                return
