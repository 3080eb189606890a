"""The two runtimes as processes, and one call of each kind whose answer is reduced to what must be the same in both."""

import asyncio
import json
import os
import socket
import subprocess
import tempfile
import time

import grpc
from macp.modes.handoff.v1 import handoff_pb2 as handoff
from macp.modes.task.v1 import task_pb2 as task
from macp.v1 import core_pb2 as core
from macp.v1 import envelope_pb2 as envelope
from macp.v1 import policy_pb2 as policy
from macp.v1.core_pb2_grpc import MACPRuntimeServiceStub

TASK, HANDOFF = "macp.mode.task.v1", "macp.mode.handoff.v1"
PAYLOADS = {
    "SessionStart": core.SessionStartPayload,
    "Commitment": core.CommitmentPayload,
    "Signal": core.SignalPayload,
    "Progress": core.ProgressPayload,
    **{name: getattr(task, f"{name}Payload") for name in (
        "TaskRequest", "TaskAccept", "TaskReject", "TaskUpdate", "TaskComplete", "TaskFail")},
    **{name: getattr(handoff, f"{name}Payload") for name in (
        "HandoffOffer", "HandoffContext", "HandoffAccept", "HandoffDecline")},
}
CONTROLS = {
    "cancel": ("CancelSession", core.CancelSessionRequest),
    "suspend": ("SuspendSession", core.SuspendSessionRequest),
    "resume": ("ResumeSession", core.ResumeSessionRequest),
}
ANSWER_SECONDS = 20


class Process:
    """A runtime on a free port of the loopback interface, and nothing of it left afterwards."""

    def __init__(self, command, environment):
        self.log = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=self.log, text=True
        )

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=60)


def start_handover(binary, data):
    """Handover in development mode: the token is the agent's id."""
    command = [binary, "serve", "--data", data, "--http", "127.0.0.1:0", "--macp", "127.0.0.1:0", "--json"]
    runtime = Process(command, {"HANDOVER_LOG_LEVEL": "warn", "HANDOVER_LIMITS_SESSIONS_OPEN_PER_AGENT_MAX": "1000000"})
    return runtime, json.loads(runtime.process.stdout.readline())["macp"]


def start_reference(binary):
    """The reference runtime in development mode, with everything in memory."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % free.getsockname()[1]
    environment = {
        "MACP_BIND_ADDR": address,
        "MACP_ALLOW_INSECURE": "1",
        "MACP_MEMORY_ONLY": "1",
        "MACP_CLEANUP_INTERVAL_SECS": "1",
        "MACP_SESSION_RETENTION_SECS": "86400",
        "MACP_SESSION_START_LIMIT_PER_MINUTE": "100000000",
        "MACP_MESSAGE_LIMIT_PER_MINUTE": "100000000",
        "RUST_LOG": "error",
    }
    runtime = Process([binary], environment)
    deadline = time.monotonic() + 60
    host, port = address.split(":")
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return runtime, address
        except OSError:
            if runtime.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the reference runtime did not start") from None
            time.sleep(0.05)


def build(step):
    """The envelope that a step sends."""
    fields = step["payload"]
    if isinstance(fields, str):
        payload = bytes.fromhex(fields)
    else:
        payload = PAYLOADS[step["payload_of"]](**revive(fields)).SerializeToString()
    at = step["at"]
    return envelope.Envelope(
        macp_version=step["version"],
        mode=step["mode"],
        message_type=step["type"],
        message_id=step["id"],
        session_id=step["session"],
        sender=step["sender"],
        timestamp_unix_ms=0 if at is None else at,
        payload=payload,
    )


def revive(fields):
    """Bytes are written as {"hex": …} in a step, so that steps are JSON."""
    if isinstance(fields, dict):
        return bytes.fromhex(fields["hex"]) if set(fields) == {"hex"} else {k: revive(v) for k, v in fields.items()}
    return fields


def refused(error):
    """A gRPC status, with the code of MACP's registry that it carries."""
    trailers = dict(error.trailing_metadata() or ())
    return f"status {error.code().name} {trailers.get('macp-error-code', '-')}"


def acknowledged(ack, message_id, session_id):
    """An Ack: accepted with a state, or refused with a code."""
    odd = "" if (ack.message_id, ack.session_id) == (message_id, session_id) else " (other ids)"
    if ack.ok:
        state = envelope.SessionState.Name(ack.session_state).removeprefix("SESSION_STATE_")
        return ("duplicate " if ack.duplicate else "ok ") + state + odd
    return "no " + coded(ack.error) + odd


def coded(error):
    """The code of an error, and of a policy's no the reasons."""
    if error.code != "POLICY_DENIED":
        return error.code
    denials = json.loads(error.details or b"{}").get("denials", [])
    return "POLICY_DENIED " + ",".join(denial["code"] for denial in denials)


def projection(session):
    """A session's metadata. Times are compared as spans: which clock read first is nobody's fault."""
    return {
        "mode": session.mode,
        "state": envelope.SessionState.Name(session.state).removeprefix("SESSION_STATE_"),
        "versions": [session.mode_version, session.configuration_version, session.policy_version],
        "participants": list(session.participants),
        "activity": {one.participant_id: one.message_count for one in session.participant_activity},
        "initiator": session.initiator,
        "context": session.context_id,
        "extensions": sorted(session.extension_keys),
        "started": session.started_at_unix_ms,
        "span": session.expires_at_unix_ms - session.started_at_unix_ms,
    }


def shown(sent):
    """An envelope as a stream delivers it."""
    payload = sent.payload.hex()
    if sent.message_id.startswith("implicit-accept:"):
        # When the deadline was is a matter of clocks; that it is there is not.
        return [sent.message_type, sent.message_id, sent.sender, sent.mode, sent.macp_version, 0, payload]
    at = sent.timestamp_unix_ms
    return [sent.message_type, sent.message_id, sent.sender, sent.mode, sent.macp_version, at, payload]


def described(found):
    """A policy as it is read back."""
    rules = found.rules
    try:
        rules = json.loads(rules)
    except ValueError:
        pass
    return [found.policy_id, found.mode, found.description, rules, found.schema_version]


def registry(answer):
    """What a registry says: its one text begins with a code, or is nothing but text."""
    code = answer.error.split(":")[0]
    return "ok" if answer.ok else f"no {code if code.isupper() else '(in words)'}"


class Stream:
    """One open StreamSession: what came back so far, and the frames that go out."""

    def __init__(self, stub, metadata):
        self.call = stub.StreamSession(metadata=metadata)
        self.came = []
        self.errors = []
        self.begun = 0
        self.end = None
        self.news = asyncio.Event()
        self.reader = asyncio.create_task(self.read())

    async def read(self):
        try:
            while (answer := await self.call.read()) is not grpc.aio.EOF:
                if answer.WhichOneof("response") == "error":
                    self.errors.append((answer.error.message_id, coded(answer.error)))
                else:
                    self.came.append(shown(answer.envelope))
                self.news.set()
            self.end = "status OK -"
        except grpc.aio.AioRpcError as error:
            self.end = refused(error)
        except asyncio.CancelledError:
            self.end = self.end or "open"
        self.news.set()

    async def write(self, frame):
        try:
            await self.call.write(frame)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
            pass  # the reader knows why

    async def until(self, answer, seconds=ANSWER_SECONDS):
        """The first answer that there is, or none in that time."""
        deadline = time.monotonic() + seconds
        while (found := answer()) is None:
            if self.end is not None:
                return f"ends: {self.end}"
            self.news.clear()
            try:
                await asyncio.wait_for(self.news.wait(), deadline - time.monotonic())
            except (asyncio.TimeoutError, TimeoutError):
                return None
        return found

    async def close(self):
        try:
            await self.call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
            pass
        await asyncio.wait([self.reader], timeout=ANSWER_SECONDS)
        if not self.reader.done():
            self.call.cancel()
            await self.reader
            return "does not end"
        return self.end


class Watch:
    """One open WatchSignals or WatchSessions. It is about everything, so that each thing comes with what it is about."""

    def __init__(self, call):
        self.call = call
        self.heard = []
        self.news = asyncio.Event()
        self.reader = asyncio.create_task(self.read())

    async def begun(self):
        """The answer has begun: what is told from now on is heard."""
        await asyncio.wait([asyncio.ensure_future(self.call.initial_metadata())], timeout=1)

    async def read(self):
        try:
            async for answer in self.call:
                if isinstance(answer, core.WatchSignalsResponse):
                    sent = answer.envelope
                    self.heard.append([sent.message_id, sent.message_type, sent.sender, sent.mode, sent.payload.hex(), answer.sender_authenticated])
                else:
                    # How the session stands by the time that it is told is a matter of time.
                    kind = core.SessionLifecycleEvent.EventType.Name(answer.event.event_type)
                    self.heard.append([answer.event.session.session_id, kind, answer.event.session.session_id])
                self.news.set()
        except (grpc.aio.AioRpcError, asyncio.CancelledError):
            pass

    async def until(self, mark):
        while not any(one[0] == mark for one in self.heard):
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), ANSWER_SECONDS)
        # What happened before in another session may be told after it.
        await asyncio.sleep(0.2)
        return sorted(self.heard, key=lambda one: one[0])


class Side:
    """One of the two runtimes, as a client sees it."""

    def __init__(self, address):
        self.channel = grpc.aio.insecure_channel(address)
        self.stub = MACPRuntimeServiceStub(self.channel)

    async def answer(self, step, streams):
        """What this runtime says to a step."""
        try:
            return await getattr(self, "do_" + step["do"])(step, streams)
        except grpc.aio.AioRpcError as error:
            return refused(error)

    def token(self, step):
        by = step["by"]
        if by is None:
            return ()
        return (("x-macp-token", by),) if step.get("header") == "x" else (("authorization", f"Bearer {by}"),)

    async def call(self, name, request, step):
        return await getattr(self.stub, name)(request, metadata=self.token(step), timeout=ANSWER_SECONDS)

    async def do_send(self, step, _):
        sent = build(step)
        answer = await self.call("Send", core.SendRequest(envelope=sent), step)
        return acknowledged(answer.ack, sent.message_id, sent.session_id)

    async def do_control(self, step, _):
        name, request = CONTROLS[step["what"]]
        answer = await self.call(name, request(session_id=step["session"], reason=step["reason"]), step)
        return acknowledged(answer.ack, "", step["session"])

    async def do_get_session(self, step, _):
        answer = await self.call("GetSession", core.GetSessionRequest(session_id=step["session"]), step)
        return projection(answer.metadata)

    async def do_list_sessions(self, step, _):
        found, token = {}, step["token"]
        while True:
            request = core.ListSessionsRequest(page_size=step["size"], page_token=token)
            answer = await self.call("ListSessions", request, step)
            found.update({one.session_id: projection(one) for one in answer.sessions if one.session_id in step["of"]})
            token = answer.next_page_token
            if not token:
                return {id: found[id] for id in sorted(found)}

    async def do_register_policy(self, step, _):
        descriptor = policy.PolicyDescriptor(**step["descriptor"])
        answer = await self.call("RegisterPolicy", policy.RegisterPolicyRequest(policy_descriptor=descriptor), step)
        return registry(answer)

    async def do_unregister_policy(self, step, _):
        answer = await self.call("UnregisterPolicy", policy.UnregisterPolicyRequest(policy_id=step["policy"]), step)
        return registry(answer)

    async def do_get_policy(self, step, _):
        answer = await self.call("GetPolicy", policy.GetPolicyRequest(policy_id=step["policy"]), step)
        return {"policy": described(answer.policy_descriptor)}

    async def do_list_policies(self, step, _):
        answer = await self.call("ListPolicies", policy.ListPoliciesRequest(mode=step["mode"]), step)
        return {"policies": sorted(described(one) for one in answer.descriptors if one.policy_id in step["of"])}

    async def do_what_if(self, step, _):
        candidate = policy.PolicyDescriptor(**step["descriptor"])
        answer = await self.call("WhatIfReplay", policy.WhatIfReplayRequest(session_id=step["session"], candidate=candidate), step)
        state = envelope.SessionState.Name
        outcome = lambda one: [state(one.state), one.resolution.hex(), one.resolved_by_history_index, one.resolved_by_message_id]
        entry = lambda one: [one.kind, state(one.state), one.error_code]
        return {
            "policies": [answer.candidate_policy_id, answer.recorded_policy_id],
            "outcomes": [outcome(answer.recorded), outcome(answer.candidate)],
            "divergence": answer.first_divergence if answer.HasField("first_divergence") else None,
            "denials": [[one.history_index, one.message_id] for one in answer.denials],
            "entries": [[one.history_index, one.message_id, one.message_type, entry(one.recorded), entry(one.candidate)] for one in answer.entries],
        }

    async def do_initialize(self, step, _):
        request = core.InitializeRequest(supported_protocol_versions=step["versions"])
        answer = await self.stub.Initialize(request, timeout=ANSWER_SECONDS)
        return {"version": answer.selected_protocol_version}

    async def do_modes(self, step, _):
        answer = await self.stub.ListModes(core.ListModesRequest(), timeout=ANSWER_SECONDS)
        return {
            one.mode: [one.mode_version, one.determinism_class, one.participant_model, sorted(one.message_types), sorted(one.terminal_message_types)]
            for one in answer.modes if one.mode in (TASK, HANDOFF)
        }

    async def do_history(self, step, streams):
        """Everything from an ordinal on, by a passive subscription that is closed at once."""
        stream = Stream(self.stub, self.token(step))
        await stream.write(core.StreamSessionRequest(subscribe_session_id=step["session"], after_sequence=step["after"]))
        end = await stream.close()
        errors = [code for _, code in stream.errors]
        return {"envelopes": stream.came, "errors": errors, "end": end}

    async def do_open(self, step, streams):
        streams[step["stream"]] = Stream(self.stub, self.token(step))
        return "open"

    async def do_frame(self, step, streams):
        stream = streams[step["stream"]]
        if stream.end is not None:
            return f"ended before: {stream.end}"
        sent = build(step)
        before = len(stream.came)
        stream.begun += before == 0
        await stream.write(core.StreamSessionRequest(envelope=sent, subscribe_session_id=step.get("subscribe", "")))

        def verdict():
            if any(one[1] == sent.message_id and one[0] == sent.message_type for one in stream.came[before:]):
                return "delivered"
            return next((f"no {code}" for id, code in reversed(stream.errors) if id == sent.message_id), None)

        if (answer := await stream.until(verdict, 0.15)) is not None:
            return answer
        # Nothing yet: what both refuse inline shows when everything before it was looked at.
        ping = envelope.Envelope(macp_version="0", mode=TASK, message_type="TaskUpdate", message_id=f"ping-{len(stream.errors)}",
                                 session_id=sent.session_id or step["bound"], sender="", payload=b"")
        await stream.write(core.StreamSessionRequest(envelope=ping))
        seen = lambda: verdict() or next(("nothing" for id, _ in stream.errors if id == ping.message_id), None)
        answer = await stream.until(seen) or "no answer"
        stream.errors = [one for one in stream.errors if one[0] != ping.message_id]
        return answer

    async def do_subscribe(self, step, streams):
        stream = streams[step["stream"]]
        if stream.end is not None:
            return f"ended before: {stream.end}"
        errors = len(stream.errors)
        stream.begun += 1
        await stream.write(core.StreamSessionRequest(subscribe_session_id=step["session"], after_sequence=step["after"]))
        refused = lambda: "no " + stream.errors[-1][1] if len(stream.errors) > errors else None
        return await stream.until(refused, 0.15) or "subscribed"

    async def do_close(self, step, streams):
        stream = streams[step["stream"]]
        end = await stream.close()
        came = stream.came
        if stream.begun > 1:
            # Whoever begins again while something is on its way may get that once or twice.
            came = list({one[1]: one for one in reversed(came)}.values())[::-1]
        return {"envelopes": came, "end": end}

    async def do_watch(self, step, streams):
        """Listen to signals, or to what becomes of sessions."""
        call = getattr(self.stub, step["what"])
        request = core.WatchSignalsRequest() if step["what"] == "WatchSignals" else core.WatchSessionsRequest()
        streams[step["watch"]] = Watch(call(request, metadata=self.token(step)))
        await streams[step["watch"]].begun()
        return "watches"

    async def do_watched(self, step, streams):
        """What was heard until the mark, of what this script did."""
        try:
            heard = await streams[step["watch"]].until(step["mark"])
        except (asyncio.TimeoutError, TimeoutError):
            return "does not hear itself"
        return {"heard": [one[1:] for one in heard if one[0] in step["of"]]}

    async def do_wait(self, step, _):
        return "waited"

    async def done(self, streams):
        for stream in streams.values():
            if not stream.reader.done():
                stream.call.cancel()
                await asyncio.wait([stream.reader], timeout=ANSWER_SECONDS)
