"""Agents of the published MACP SDK, what they send, and the codes with which they are refused."""

import grpc
from macp.modes.task.v1 import task_pb2
from macp_sdk import AuthConfig, MacpAckError, MacpClient, MacpTransportError
from macp_sdk.client import macp_error_code
from macp_sdk.constants import MODE_TASK
from macp_sdk.envelope import build_commitment_payload, build_envelope, build_session_start_payload
from over_mcp import Client
from server import PATIENCE, token_of


class Agent(MacpClient):
    """One agent on a connection of its own."""

    def __init__(self, server, name, tenant="acme"):
        auth = AuthConfig.for_bearer(token_of(name, tenant), sender_hint=name)
        target = "{}:{}".format(*server.macp)
        super().__init__(target=target, allow_insecure=True, auth=auth, default_timeout=PATIENCE)
        self.name = name

    def say(self, session, kind, payload, message_id=None, mode=MODE_TASK):
        """Send one message."""
        given = {"sender": self.name, "message_id": message_id, "payload": payload.SerializeToString()}
        return self.send(build_envelope(mode=mode, message_type=kind, session_id=session, **given))

    def start(self, session, participants, mode=MODE_TASK):
        payload = build_session_start_payload(intent="x", participants=participants, ttl_ms=600_000)
        return self.say(session, "SessionStart", payload, mode=mode)

    def update(self, session, message="", message_id=None, output=b""):
        payload = task_pb2.TaskUpdatePayload(task_id="t1", status="going", message=message, partial_output=output)
        return self.say(session, "TaskUpdate", payload, message_id)

    def complete(self, session):
        payload = task_pb2.TaskCompletePayload(task_id="t1", assignee=self.name, output=b"done")
        return self.say(session, "TaskComplete", payload)

    def commit(self, session, message_id=None):
        payload = build_commitment_payload(action="task.completed", authority_scope="s", reason="r")
        return self.say(session, "Commitment", payload, message_id)

    def timeline(self, session):
        """A page of 1,000 of `handover.v1`, whose messages the SDK does not have: the bytes of the answer."""
        # session_id is field 1, and page_size, which is 1,000, field 3.
        asked = bytes([0x0A, len(session)]) + session.encode() + bytes([0x18, 0xE8, 0x07])
        with grpc.insecure_channel(self.target, options=[("grpc.max_receive_message_length", -1)]) as channel:
            call = channel.unary_unary("/handover.v1.Handover/ReadTimeline")
            return call(asked, metadata=self.auth.metadata(), timeout=PATIENCE)


def working(server, session, requester="planner", assignee="worker", tenant="acme"):
    """A task that somebody works on, and the two agents."""
    planner, worker = Agent(server, requester, tenant), Agent(server, assignee, tenant)
    planner.start(session, [requester, assignee])
    request = task_pb2.TaskRequestPayload(task_id="t1", title="dig", instructions="dig", requested_assignee=assignee)
    planner.say(session, "TaskRequest", request)
    worker.say(session, "TaskAccept", task_pb2.TaskAcceptPayload(task_id="t1", assignee=assignee))
    return planner, worker


def code_of(call, *args, **kwargs):
    """The code with which a call is refused, or what it did instead."""
    try:
        return f"it did: {call(*args, **kwargs)}"
    except MacpAckError as refused:
        return refused.failure.code
    except MacpTransportError as refused:
        return refused.macp_code
    except grpc.RpcError as refused:
        return macp_error_code(refused) or refused.code().name


def serves_the_honest(server):
    """An agent of another tenant is served on both listeners."""
    assert Client(server, "honest", "other").ask("tools/list")["tools"]
    with Agent(server, "honest", "other") as client:
        client.list_sessions()
