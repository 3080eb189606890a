"""The whole Handoff Mode guide, with the SDK's projection compared with what the server tells."""

import uuid

import pytest
from conftest import auth
from macp.v1 import envelope_pb2
from macp_sdk import MacpAckError
from macp_sdk.handoff import HandoffProjection, HandoffSession
from macp_sdk.policy import HandoffAcceptanceRules, build_handoff_policy

RESOLVED = envelope_pb2.SESSION_STATE_RESOLVED


def started(client, participants=("owner-a", "owner-b", "owner-c"), **kwargs):
    session = HandoffSession(client, **kwargs)
    session.start(intent="transfer on-call", participants=list(participants), ttl_ms=60_000)
    return session


def code_of(call, *args, **kwargs):
    with pytest.raises(MacpAckError) as caught:
        call(*args, **kwargs)
    return caught.value.failure.code


def test_the_guide_from_offer_to_commitment(agent):
    owner = agent("owner-a")
    session = started(owner)
    session.offer("h1", "owner-b", scope="service-xyz-oncall", reason="rotation")
    session.add_context("h1", content_type="application/json", context=b'{"runbook": "r"}')
    projection = session.handoff_projection
    assert projection.active_offer().handoff_id == "h1"
    session.accept_handoff("h1", sender="owner-b", auth=auth("owner-b"))
    assert projection.is_accepted("h1")
    ack = session.commit(action="handoff.accepted", authority_scope="ownership", reason="accepted")
    assert ack.session_state == RESOLVED

    stream = owner.open_stream()
    stream.send_subscribe(session.session_id)
    told = [stream.read(timeout=10) for _ in range(5)]
    stream.close()
    kinds = [envelope.message_type for envelope in told]
    assert kinds == ["SessionStart", "HandoffOffer", "HandoffContext", "HandoffAccept", "Commitment"]
    replayed = HandoffProjection()
    for envelope in told:
        replayed.apply_envelope(envelope)
    assert replayed.phase == projection.phase
    assert replayed.is_accepted("h1")


def test_a_decline_is_followed_by_another_offer(agent):
    session = started(agent("owner-a"))
    session.offer("h1", "owner-b", scope="oncall")
    session.decline("h1", reason="on vacation", sender="owner-b", auth=auth("owner-b"))
    assert session.handoff_projection.is_declined("h1")
    session.offer("h2", "owner-c", scope="oncall")
    session.accept_handoff("h2", sender="owner-c", auth=auth("owner-c"))
    ack = session.commit(action="handoff.accepted", authority_scope="ownership", reason="owner-c accepted")
    assert ack.session_state == RESOLVED


def test_forbidden_on_accept_and_decline_by_somebody_else(agent):
    session = started(agent("owner-a"))
    session.offer("h1", "owner-b", scope="oncall")
    assert code_of(session.accept_handoff, "h1", sender="owner-c", auth=auth("owner-c")) == "FORBIDDEN"
    assert code_of(session.decline, "h1", sender="owner-c", auth=auth("owner-c")) == "FORBIDDEN"


def test_invalid_envelope_on_an_unknown_offer(agent):
    session = started(agent("owner-a"))
    session.offer("h1", "owner-b", scope="oncall")
    assert code_of(session.accept_handoff, "h9", sender="owner-b", auth=auth("owner-b")) == "INVALID_ENVELOPE"


def test_an_offer_that_nobody_answers_is_accepted_implicitly(agent):
    owner = agent("owner-a")
    name = f"policy.implicit.{uuid.uuid4().hex}"
    acceptance = HandoffAcceptanceRules(implicit_accept_timeout_ms=200)
    owner.register_policy(build_handoff_policy(name, "accepted after a while", acceptance=acceptance))
    session = started(owner, policy_version=name)
    session.offer("h1", "owner-b", scope="oncall")
    stream = owner.open_stream()
    stream.send_subscribe(session.session_id, after_sequence=2)
    envelope = stream.read(timeout=10)
    stream.close()
    assert envelope.message_type == "HandoffAccept"
    assert envelope.message_id == "implicit-accept:h1"
    assert envelope.sender == "owner-b"
    assert session.commit(action="handoff.accepted", authority_scope="o", reason="r").session_state == RESOLVED
