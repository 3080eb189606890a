"""What-if replay: a session under a candidate policy, read only."""

import uuid

from conftest import auth
from macp.v1 import envelope_pb2
from macp_sdk.policy import TaskCompletionRules, build_task_policy
from macp_sdk.task import TaskSession


def test_a_stricter_policy_would_have_denied_the_commitment(agent):
    planner = agent("planner")
    planner.initialize()
    session = TaskSession(planner)
    session.start(intent="x", participants=["planner", "worker"], ttl_ms=60_000)
    session.request_task("t1", "Q4", requested_assignee="worker")
    session.accept_task("t1", sender="worker", auth=auth("worker"))
    session.complete_task("t1", output=b"", sender="worker", auth=auth("worker"))
    session.commit(action="task.completed", authority_scope="s", reason="r")

    same = build_task_policy(f"policy.same.{uuid.uuid4().hex}", "as it is")
    answer = planner.what_if_replay(session.session_id, same)
    assert not answer.HasField("first_divergence")
    assert answer.candidate.state == envelope_pb2.SESSION_STATE_RESOLVED
    assert answer.candidate.resolution == answer.recorded.resolution

    strict = build_task_policy(
        f"policy.strict.{uuid.uuid4().hex}", "needs an output", completion=TaskCompletionRules(require_output=True)
    )
    answer = planner.what_if_replay(session.session_id, strict)
    assert answer.recorded.state == envelope_pb2.SESSION_STATE_RESOLVED
    assert answer.candidate.state == envelope_pb2.SESSION_STATE_OPEN
    assert answer.first_divergence == 4
    assert [denial.history_index for denial in answer.denials] == [4]
    assert [entry.message_type for entry in answer.entries][-1] == "Commitment"
    assert session.metadata().metadata.state == envelope_pb2.SESSION_STATE_RESOLVED
