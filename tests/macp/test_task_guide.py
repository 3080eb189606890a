"""The whole Task Mode guide, with the SDK's projection compared with what the server tells at each step."""

import queue
import threading
import uuid

import grpc
import pytest
from conftest import auth
from macp.v1 import core_pb2, envelope_pb2
from macp_sdk import MacpAckError, MacpTimeoutError, SignalWatcher
from macp_sdk.client import macp_error_code
from macp_sdk.constants import MODE_TASK
from macp_sdk.policy import TaskAssignmentRules, build_task_policy
from macp_sdk.task import TaskProjection, TaskSession

OPEN = envelope_pb2.SESSION_STATE_OPEN
RESOLVED = envelope_pb2.SESSION_STATE_RESOLVED


def started(client, participants=("planner", "worker"), **kwargs):
    session = TaskSession(client)
    kwargs = {"intent": "analyse", "ttl_ms": 60_000, **kwargs}
    session.start(participants=list(participants), **kwargs)
    return session


def requested(client, **kwargs):
    session = started(client)
    session.request_task("t1", "Q4", instructions="look", requested_assignee="worker", input_data=b"{}", **kwargs)
    return session


def accepted(client):
    session = requested(client)
    session.accept_task("t1", sender="worker", auth=auth("worker"))
    return session


def code_of(call, *args, **kwargs):
    with pytest.raises(MacpAckError) as caught:
        call(*args, **kwargs)
    return caught.value.failure.code


def transcript(client, session_id, count, after=0):
    """So many envelopes of a session, as a passive subscriber gets them."""
    stream = client.open_stream()
    stream.send_subscribe(session_id, after_sequence=after)
    envelopes = [stream.read(timeout=10) for _ in range(count)]
    stream.close()
    return envelopes


def test_the_guide_from_start_to_commitment(agent):
    planner = agent("planner")
    session = started(planner)
    projection = session.task_projection
    assert projection.phase == "Pending"
    ack = session.request_task(
        "t1",
        "Q4 Sales Analysis",
        instructions="Run the sales pipeline",
        requested_assignee="worker",
        input_data=b'{"quarter": "Q4"}',
        deadline_unix_ms=1735689600000,
    )
    assert ack.ok and ack.session_state == OPEN
    session.accept_task("t1", sender="worker", auth=auth("worker"))
    assert projection.is_accepted("t1")
    session.update_task("t1", status="running", progress=0.3, message="loading", sender="worker", auth=auth("worker"))
    session.update_task("t1", status="running", progress=0.7, message="computing", sender="worker", auth=auth("worker"))
    assert projection.latest_progress() == 0.7
    session.complete_task("t1", output=b'{"revenue": 1}', summary="up", sender="worker", auth=auth("worker"))
    assert projection.is_completed("t1")
    assert session.metadata().metadata.state == OPEN
    ack = session.commit(action="task.completed", authority_scope="analysis", reason="delivered")
    assert ack.session_state == RESOLVED
    assert projection.phase == "Committed"

    told = transcript(planner, session.session_id, 7)
    kinds = [envelope.message_type for envelope in told]
    assert kinds == ["SessionStart", "TaskRequest", "TaskAccept", "TaskUpdate", "TaskUpdate", "TaskComplete", "Commitment"]
    replayed = TaskProjection()
    for envelope in told:
        replayed.apply_envelope(envelope)
    assert replayed.phase == projection.phase
    assert replayed.progress_of("t1") == projection.progress_of("t1")
    assert replayed.current_assignee("t1") == "worker"

    metadata = session.metadata().metadata
    assert metadata.state == RESOLVED
    assert metadata.initiator == "planner"
    assert list(metadata.participants) == ["planner", "worker"]
    activity = {entry.participant_id: entry.message_count for entry in metadata.participant_activity}
    assert activity == {"planner": 2, "worker": 4}


def test_a_failed_task_is_committed_as_failed(agent):
    session = accepted(agent("planner"))
    session.fail_task("t1", error_code="E1", reason="no data", retryable=True, sender="worker", auth=auth("worker"))
    assert session.task_projection.is_failed("t1")
    assert session.task_projection.is_retryable("t1")
    ack = session.commit(action="task.failed", authority_scope="analysis", reason="E1", outcome_positive=False)
    assert ack.session_state == RESOLVED


def test_forbidden_on_accept_by_somebody_else(agent):
    session = started(agent("planner"), ("planner", "worker", "other"))
    session.request_task("t1", "Q4", requested_assignee="worker")
    assert code_of(session.accept_task, "t1", sender="other", auth=auth("other")) == "FORBIDDEN"


def test_forbidden_on_update_by_somebody_else(agent):
    session = started(agent("planner"), ("planner", "worker", "other"))
    session.request_task("t1", "Q4", requested_assignee="worker")
    session.accept_task("t1", sender="worker", auth=auth("worker"))
    assert code_of(session.update_task, "t1", status="running", sender="other", auth=auth("other")) == "FORBIDDEN"


def test_forbidden_on_commitment_by_somebody_else(agent):
    session = accepted(agent("planner"))
    session.complete_task("t1", output=b"x", sender="worker", auth=auth("worker"))
    commit = dict(action="task.completed", authority_scope="s", reason="r", sender="worker", auth=auth("worker"))
    assert code_of(session.commit, **commit) == "FORBIDDEN"


def test_invalid_envelope_on_a_second_request(agent):
    session = requested(agent("planner"))
    assert code_of(session.request_task, "t2", "again") == "INVALID_ENVELOPE"


def test_a_stranger_is_forbidden_everything(agent):
    session = requested(agent("planner"))
    assert code_of(session.accept_task, "t1", sender="mallory", auth=auth("mallory")) == "FORBIDDEN"
    with pytest.raises(grpc.RpcError) as caught:
        agent("mallory").get_session(session.session_id)
    assert macp_error_code(caught.value) == "FORBIDDEN"
    stream = agent("mallory").open_stream()
    errors = []
    stream.on_inline_error(errors.append)
    stream.send_subscribe(session.session_id)
    with pytest.raises(MacpTimeoutError):
        stream.read(timeout=1)
    assert [error.code for error in errors] == ["FORBIDDEN"]
    stream.close()


def test_a_forged_sender_is_unauthenticated(agent):
    planner = agent("planner")
    session = requested(planner)
    envelope = session._accept_task_envelope("t1", sender="worker", auth=auth("worker"))
    assert code_of(planner.send, envelope, auth=auth("mallory")) == "UNAUTHENTICATED"


def test_the_same_message_id_has_one_effect(agent):
    planner = agent("planner")
    session = requested(planner)
    envelope = session._accept_task_envelope("t1", sender="worker", auth=auth("worker"))
    first = planner.send(envelope, auth=auth("worker"))
    again = planner.send(envelope, auth=auth("worker"))
    assert not first.duplicate and again.ok and again.duplicate
    assert again.accepted_at_unix_ms == first.accepted_at_unix_ms
    assert again.session_state == OPEN
    kinds = [envelope.message_type for envelope in transcript(planner, session.session_id, 3)]
    assert kinds == ["SessionStart", "TaskRequest", "TaskAccept"]


def test_a_second_start_of_a_known_session_is_refused(agent):
    planner = agent("planner")
    session = started(planner)
    again = TaskSession(planner, session_id=session.session_id)
    start = dict(intent="again", participants=["planner", "worker"], ttl_ms=60_000)
    assert code_of(again.start, **start) == "SESSION_ALREADY_EXISTS"


def test_an_unknown_session_is_not_found(agent):
    session = TaskSession(agent("planner"), session_id=str(uuid.uuid4()))
    assert code_of(session.request_task, "t1", "Q4") == "SESSION_NOT_FOUND"


def test_a_broadcast_task_goes_to_whoever_has_not_declined(agent):
    session = started(agent("planner"), ("planner", "w1", "w2", "w3"))
    session.request_task("t1", "Q4")
    session.reject_task("t1", reason="busy", sender="w1", auth=auth("w1"))
    assert code_of(session.accept_task, "t1", sender="w1", auth=auth("w1")) == "INVALID_ENVELOPE"
    session.accept_task("t1", sender="w2", auth=auth("w2"))
    assert code_of(session.accept_task, "t1", sender="w3", auth=auth("w3")) == "INVALID_ENVELOPE"
    assert session.task_projection.current_assignee("t1") == "w2"


def test_of_two_agents_that_race_exactly_one_accepts(agent):
    planner = agent("planner")
    racers = {name: agent(name) for name in ("w1", "w2")}
    for _ in range(1000):
        session = started(planner, ("planner", "w1", "w2"))
        session.request_task("t1", "Q4")
        envelopes = {
            name: session._accept_task_envelope("t1", sender=name, auth=auth(name)) for name in racers
        }
        acks = {}

        def race(name):
            acks[name] = racers[name].send(envelopes[name], auth=auth(name), raise_on_nack=False)

        threads = [threading.Thread(target=race, args=(name,)) for name in racers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(ack.ok for ack in acks.values()) == [False, True]


def test_a_passive_subscriber_begins_in_the_middle_and_misses_nothing(agent):
    planner, worker = agent("planner"), agent("worker")
    session = accepted(planner)
    count = 60
    stream = worker.open_stream()
    stream.send_subscribe(session.session_id, after_sequence=2)

    def write():
        for step in range(count):
            session.update_task("t1", status="running", progress=step / count, sender="worker", auth=auth("worker"))

    writer = threading.Thread(target=write)
    writer.start()
    told = [stream.read(timeout=20) for _ in range(count + 1)]
    writer.join()
    stream.close()
    assert told[0].message_type == "TaskAccept"
    assert len({envelope.message_id for envelope in told}) == count + 1
    assert all(envelope.message_type == "TaskUpdate" for envelope in told[1:])


def test_a_stream_whose_sender_has_closed_ends_with_what_was_accepted(agent):
    planner = agent("planner")
    session = accepted(planner)
    subscribe = core_pb2.StreamSessionRequest(subscribe_session_id=session.session_id)
    metadata = [("authorization", "Bearer planner")]
    frames = planner.stub.StreamSession(iter([subscribe]), metadata=metadata, timeout=20)
    assert [frame.envelope.message_type for frame in frames] == ["SessionStart", "TaskRequest", "TaskAccept"]
    assert frames.code() == grpc.StatusCode.OK


def test_progress_of_a_session_is_heard_by_those_in_it(agent):
    planner, worker = agent("planner"), agent("worker")
    session = accepted(planner)
    heard = queue.Queue()

    def listen():
        heard.put(next(SignalWatcher(planner).signals()))

    threading.Thread(target=listen, daemon=True).start()
    progress = dict(progress_token="p1", progress=1.0, total=2.0, session_id=session.session_id, mode=MODE_TASK)
    for _ in range(200):
        assert worker.send_progress(**progress).ok
        try:
            assert heard.get(timeout=0.1).message_type == "Progress"
            return
        except queue.Empty:
            pass
    pytest.fail("nobody heard of the progress")


def test_suspend_banks_the_time_and_resume_goes_on(agent):
    session = accepted(agent("planner"))
    before = session.metadata().metadata.expires_at_unix_ms
    assert session.suspend(reason="lunch").session_state == envelope_pb2.SESSION_STATE_SUSPENDED
    update = dict(status="running", sender="worker", auth=auth("worker"))
    assert code_of(session.update_task, "t1", **update) == "SESSION_NOT_OPEN"
    assert code_of(session.suspend, reason="again") == "SESSION_NOT_OPEN"
    assert session.resume(reason="back").session_state == OPEN
    assert session.metadata().metadata.expires_at_unix_ms >= before
    assert session.update_task("t1", **update).ok


def test_a_session_expires_when_its_time_is_up(agent):
    planner = agent("planner")
    session = started(planner, ttl_ms=300)
    events = planner.watch_sessions()
    for event in events:
        if event.event.session.session_id == session.session_id:
            if event.event.event_type == core_pb2.SessionLifecycleEvent.EVENT_TYPE_EXPIRED:
                break
    assert session.metadata().metadata.state == envelope_pb2.SESSION_STATE_EXPIRED
    assert code_of(session.request_task, "t1", "late") == "SESSION_NOT_OPEN"


def test_cancelling_twice_is_no_error(agent):
    session = accepted(agent("planner"))
    assert session.cancel(reason="changed my mind").session_state == envelope_pb2.SESSION_STATE_CANCELLED
    assert session.cancel(reason="really").session_state == envelope_pb2.SESSION_STATE_CANCELLED


def test_reassignment_is_what_the_policy_says(agent):
    planner = agent("planner")
    denied = accepted(planner)
    reject = dict(reason="ill", sender="worker", auth=auth("worker"))
    assert code_of(denied.reject_task, "t1", **reject) == "POLICY_DENIED"

    name = f"policy.reassign.{uuid.uuid4().hex}"
    assignment = TaskAssignmentRules(allow_reassignment_on_reject=True)
    planner.register_policy(build_task_policy(name, "may be reassigned", assignment=assignment))
    session = TaskSession(planner, policy_version=name)
    session.start(intent="x", participants=["planner", "worker", "other"], ttl_ms=60_000)
    session.request_task("t1", "Q4", requested_assignee="worker")
    session.accept_task("t1", sender="worker", auth=auth("worker"))
    session.reject_task("t1", **reject)
    assert code_of(session.accept_task, "t1", sender="worker", auth=auth("worker")) == "INVALID_ENVELOPE"
    session.accept_task("t1", sender="other", auth=auth("other"))
    assert session.task_projection.current_assignee("t1") == "other"


def test_lists_show_a_caller_its_own_sessions_in_pages(own_server):
    planner, mallory = own_server.client("planner"), own_server.client("mallory")
    ids = {started(planner).session_id for _ in range(25)}
    found, token = [], ""
    while True:
        page, token = planner.list_sessions_page(page_size=10, page_token=token)
        found += [session.session_id for session in page]
        if not token:
            break
    assert len(found) == 25 and set(found) == ids
    assert mallory.list_sessions() == []


def test_nothing_is_lost_when_the_server_is_killed(own_server):
    planner, worker = own_server.client("planner"), own_server.client("worker")
    session = accepted(planner)
    for step in range(5):
        session.update_task("t1", status="running", progress=step / 10, sender="worker", auth=auth("worker"))
    stream = worker.open_stream()
    stream.send_subscribe(session.session_id)
    seen = [stream.read(timeout=10).message_id for _ in range(8)]
    target = own_server.target
    own_server.kill()
    own_server.start(macp=target)
    worker = own_server.client("worker")
    session.client = own_server.client("planner")
    session.update_task("t1", status="running", progress=0.9, sender="worker", auth=auth("worker"))
    stream = worker.open_stream()
    stream.send_subscribe(session.session_id, after_sequence=len(seen))
    seen.append(stream.read(timeout=10).message_id)
    assert len(set(seen)) == 9
    stream.close()
