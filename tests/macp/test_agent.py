"""The SDK's agent framework: a worker and a planner that run by themselves and finish real tasks."""

import threading

from conftest import auth
from macp.v1 import envelope_pb2
from macp_sdk.agent import GrpcTransportAdapter, Participant
from macp_sdk.constants import MODE_TASK
from macp_sdk.task import TaskSession

TASKS = 5


def participant(client, name, session_id):
    credential = auth(name)
    transport = GrpcTransportAdapter(client, session_id, auth=credential)
    return Participant(
        participant_id=name, session_id=session_id, mode=MODE_TASK, client=client, auth=credential, transport=transport
    )


def worker_of(client, session_id):
    session = TaskSession(client, session_id=session_id, auth=auth("worker"))

    def work(message, context):
        session.accept_task("t1")
        session.update_task("t1", status="running", progress=0.5)
        session.complete_task("t1", output=b"done", summary="done")

    return participant(client, "worker", session_id).on("TaskRequest", work)


def planner_of(client, session_id, ended):
    def review(message, context):
        context.actions.commit("task.completed", "analysis", reason="delivered")

    planner = participant(client, "planner", session_id).on("TaskComplete", review)
    return planner.on_terminal(lambda result: ended.append(result.state))


def test_an_agent_may_come_before_its_session(agent):
    planner, worker = agent("planner"), agent("worker")
    session = TaskSession(planner)
    early = worker_of(worker, session.session_id)
    thread = threading.Thread(target=early.run, daemon=True)
    thread.start()
    session.start(intent="work", participants=["planner", "worker"], ttl_ms=60_000)
    session.request_task("t1", "Q4", requested_assignee="worker")
    stream = planner.open_stream()
    stream.send_subscribe(session.session_id)
    kinds = [stream.read(timeout=20).message_type for _ in range(5)]
    stream.close()
    assert kinds[-1] == "TaskComplete"
    session.commit(action="task.completed", authority_scope="s", reason="r")
    thread.join(timeout=20)
    assert not thread.is_alive()


def test_a_worker_and_a_planner_finish_tasks_by_themselves(agent):
    planner, worker = agent("planner"), agent("worker")
    for _ in range(TASKS):
        session = TaskSession(planner)
        session.start(intent="work", participants=["planner", "worker"], ttl_ms=60_000)
        ended = []
        agents = [worker_of(worker, session.session_id), planner_of(planner, session.session_id, ended)]
        threads = [threading.Thread(target=one.run, daemon=True) for one in agents]
        for thread in threads:
            thread.start()
        session.request_task("t1", "Q4", requested_assignee="worker")
        for thread in threads:
            thread.join(timeout=20)
            assert not thread.is_alive()
        assert ended == ["Committed"]
        assert session.metadata().metadata.state == envelope_pb2.SESSION_STATE_RESOLVED
