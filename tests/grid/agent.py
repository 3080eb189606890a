"""A Grid agent in the standard library: JSON-RPC calls, and the stream of its notifications, resumed where it was lost.

It has a bearer token, or a key with which it signs every request (`cryptography` is needed only for that).
"""

import hashlib
import http.client
import itertools
import json
import queue
import secrets
import socket
import threading
import time
import uuid
from collections import namedtuple

# How long anything may take before a test has failed: long, because the machine may be busy.
PATIENCE = 30.0

# A whole HTTP answer, and one event of a stream.
Answer = namedtuple("Answer", "status headers body")
Event = namedtuple("Event", "id name data")


class Refused(Exception):
    """The server said no."""

    def __init__(self, status, error):
        super().__init__(f"{status}: {error}")
        self.status, self.error = status, error
        self.code, self.message = error.get("code"), error.get("message")
        # What it is called on every protocol.
        self.name = (error.get("data") or {}).get("code")


def exchange(address, verb, path, body=None, headers=None):
    """One request on a connection of its own."""
    connection = http.client.HTTPConnection(*address, timeout=PATIENCE)
    try:
        connection.request(verb, path, body, headers or {})
        answer = connection.getresponse()
        return Answer(answer.status, dict(answer.headers), answer.read())
    finally:
        connection.close()


class Key:
    """An Ed25519 key, and the node id that it has."""

    def __init__(self):
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self.private = Ed25519PrivateKey.generate()
        public = self.private.public_key().public_bytes_raw()
        self.public = public.hex()
        self.node = str(uuid.uuid5(uuid.NAMESPACE_DNS, hashlib.sha256(public).hexdigest()))

    def sign(self, payload, **instead):
        """The payload as it is sent: who signs, when, a nonce, and the signature over all of it."""
        stamped = {"fromNodeId": self.node, "timestamp": time.time(), "nonce": secrets.token_hex(16)}
        payload = {**payload, **stamped, **instead}
        text = json.dumps(payload, sort_keys=True, ensure_ascii=False)
        return {**payload, "signature": self.private.sign(text.encode()).hex()}


class Agent:
    """One agent at one server. In development its token is its name."""

    def __init__(self, address, name, token=None, key=None):
        self.address, self.name, self.key = address, name, key
        self.token = None if key else token or name
        # The address of a node is its name, or the node id of a key that is bound to it.
        self.node = key.node if key else name
        self.ids = itertools.count(1)
        self.streams = []

    def headers(self):
        return {"content-type": "application/json"} | ({"authorization": f"Bearer {self.token}"} if self.token else {})

    def http(self, verb, path, body=None):
        """Any request. A body that is no bytes is sent as JSON, signed if the agent has a key."""
        if self.key and isinstance(body, dict):
            body = self.key.sign(body)
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body, ensure_ascii=False).encode()
        return exchange(self.address, verb, path, body, self.headers())

    def rest(self, verb, path, body=None):
        """A request to the directory: what it answers, or why it is refused."""
        answer = self.http(verb, path, body)
        said = json.loads(answer.body)
        if answer.status >= 400:
            raise Refused(answer.status, said.get("error", said))
        return said

    def rpc(self, body):
        """Send this body as it is."""
        return self.http("POST", f"/grid/a2a/{self.node}", body)

    def call(self, method, **params):
        """A method: its result, or why it is refused."""
        asked = next(self.ids)
        answer = self.rpc({"jsonrpc": "2.0", "id": asked, "method": method, "params": params})
        said = json.loads(answer.body)
        if "error" in said:
            # What is refused before it is read as JSON-RPC has an error of HTTP's.
            error = said["error"] if isinstance(said["error"], dict) else said
            raise Refused(answer.status, error)
        assert said["jsonrpc"] == "2.0" and said["id"] == asked, said
        return said["result"]

    def listen(self, last=None, **how):
        """The stream of what happens, from now on or after an event."""
        self.streams.append(Stream(self, last, **how))
        return self.streams[-1].opened()

    def close(self):
        for stream in self.streams:
            stream.close()


class Stream:
    """Reads the events of an agent in a thread, and connects again with the last id whenever the connection ends."""

    def __init__(self, agent, last=None, token=None, again=True, pause=0.05):
        self.agent, self.last, self.again, self.pause = agent, last, again, pause
        self.token = token or agent.token
        # What was told: notifications, and everything, in order.
        self.told, self.events = queue.Queue(), queue.Queue()
        self.connections = 0
        self.ended, self.ready = threading.Event(), threading.Event()
        self.problem = self.socket = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def opened(self):
        """Wait until the server says that it is connected."""
        assert self.ready.wait(PATIENCE), "waited in vain for the stream to open"
        if self.problem:
            raise self.problem
        return self

    def next(self, kind=None, patience=PATIENCE, **fields):
        """The next notification, of this kind and with these fields if any are given; those before it are dropped."""
        deadline = time.monotonic() + patience
        seen = []
        while True:
            try:
                event = self.told.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"waited in vain for {kind} {fields}, was told {seen}") from None
            said = event.data
            if kind in (None, said["kind"]) and all(said.get(name) == value for name, value in fields.items()):
                return said
            seen.append(said)

    def waiting(self):
        """What was told and not taken yet."""
        with self.told.mutex:
            return [event.data for event in self.told.queue]

    def event(self, name, patience=PATIENCE):
        """The next event of this name, whatever came before it."""
        deadline = time.monotonic() + patience
        while (event := self.events.get(timeout=max(0.0, deadline - time.monotonic()))).name != name:
            pass
        return event

    def close(self):
        self.again = False
        self.ended.set()
        self._hang_up()
        self.thread.join(PATIENCE)

    def lose(self):
        """End the connection as a network does: the stream connects again."""
        self.ready.clear()
        self._hang_up()

    def _hang_up(self):
        try:
            if self.socket:
                self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def _run(self):
        while not self.ended.is_set():
            try:
                self._read()
            except Refused as problem:
                self.problem, self.again = problem, False
                self.ready.set()
            except (OSError, http.client.HTTPException):
                pass
            if not self.again or self.ended.wait(self.pause):
                break
        self.ended.set()

    def _read(self):
        connection = http.client.HTTPConnection(*self.agent.address, timeout=2 * PATIENCE)
        try:
            connection.connect()
            self.socket = connection.sock
            headers = {"accept": "text/event-stream", "authorization": f"Bearer {self.token}"}
            if self.last is not None:
                headers["last-event-id"] = self.last
            connection.request("GET", f"/grid/a2a/{self.agent.node}/events", headers=headers)
            answer = connection.getresponse()
            if answer.status != 200:
                said = json.loads(answer.read())
                raise Refused(answer.status, said.get("error", said))
            assert answer.headers["content-type"].startswith("text/event-stream"), answer.headers
            self.connections += 1
            self._events(answer)
        finally:
            connection.close()

    def _events(self, answer):
        fields = {}
        while line := answer.readline():
            name, _, value = line.decode().rstrip("\r\n").partition(":")
            if name:
                fields[name] = value.removeprefix(" ")
                continue
            if line in (b"\n", b"\r\n") and "data" in fields:
                event = Event(fields.get("id"), fields.get("event"), json.loads(fields["data"]))
                # It counts as told from here on.
                self.last = event.id or self.last
                self.events.put(event)
                if event.name == "task_notify":
                    self.told.put(event)
                if event.name == "connected":
                    self.ready.set()
            if line in (b"\n", b"\r\n"):
                fields = {}
