"""Nobody does what is not theirs to do, whatever way they take.

There is no setting that would take these rules away. Above each test is the fault that was planted in the library to see
it fail.
"""

import uuid

import pytest
from macp_sdk.constants import MODE_HANDOFF
from over_macp import Agent, code_of, working
from over_mcp import Client, Refused
from server import until

ACCESS = """[
    { tenant = "acme", agents = ["mallory"], see = ["worker"], delegate = ["worker"], hand_on = [], register = ["draft-*"] },
]"""


def named(server, *names):
    return [Client(server, name) for name in names]


def skill(name, **more):
    schema = {"type": "object", "properties": {"what": {"type": "string"}}}
    return {"name": name, "description": "does it", "inputSchema": schema, **more}


def register(client, *skills, name="An agent", **more):
    return client.tool("agent_register", name=name, description="d", skills=list(skills), **more)


# Planted: the errand of a committed handoff is the requester's (kernel, across.rs).
def test_an_agent_that_gave_a_task_back_cannot_take_it_again_with_an_old_offer(server):
    planner, mallory, worker, helper = named(server, "planner", "mallory", "worker", "helper")
    work = {"title": "dig", "instructions": "dig", "agents": ["mallory", "worker", "helper"]}
    task = planner.tool("delegate_task", **work)["task_id"]
    mallory.tool("work_accept", task_id=task)
    handoff = mallory.tool("handoff_offer", task_id=task, to="helper")["handoff_id"]
    helper.tool("handoff_accept", handoff_id=handoff)
    mallory.tool("work_decline", task_id=task, reason="no time")
    worker.tool("work_accept", task_id=task)
    mallory.tool("handoff_commit", handoff_id=handoff)

    # The commitment stands, and then the task has its say.
    over_macp = Agent(server, "mallory")
    until(lambda: b"NOT_ASSIGNEE" in over_macp.timeline(handoff), "the handoff says why it moved nothing")
    assert planner.tool("task_status", task_id=task)["assignee"] == "worker"
    worker.tool("work_complete", task_id=task, text="done")


# Planted: a used id is a duplicate whoever sends what under it (kernel, repeat.rs).
def test_an_id_that_somebody_else_has_used_does_not_swallow_a_commitment(server):
    session = str(uuid.uuid4())
    planner, worker = working(server, session)
    worker.update(session, "going", message_id="squatted")
    assert worker.update(session, "going", message_id="squatted").duplicate
    assert code_of(worker.update, session, "else", message_id="squatted") == "DUPLICATE_MESSAGE"
    worker.complete(session)
    assert code_of(planner.commit, session, message_id="squatted") == "DUPLICATE_MESSAGE"
    assert not planner.commit(session, message_id="another").duplicate


# Planted: the same.
def test_one_key_on_two_calls_is_refused_and_never_answered_as_done(server):
    planner, worker = named(server, "planner", "worker")
    work = {"title": "dig", "instructions": "dig", "agent": "worker"}
    task = planner.tool("delegate_task", key="d", **work)["task_id"]
    worker.tool("work_accept", task_id=task)
    worker.tool("work_update", key="k", task_id=task, message="half")
    worker.tool("work_update", key="k", task_id=task, message="half")
    for tool, more in [
        ("work_update", {"message": "more"}),
        ("work_complete", {"text": "done"}),
        ("work_fail", {"reason": "broken"}),
    ]:
        assert worker.why_not(tool, key="k", task_id=task, **more) == "DUPLICATE_MESSAGE"
    planner.tool("task_steer", key="s", task_id=task, message="left")
    assert planner.why_not("task_steer", key="s", task_id=task, message="right") == "DUPLICATE_MESSAGE"
    assert planner.why_not("delegate_task", key="d", **work | {"instructions": "else"}) == "DUPLICATE_MESSAGE"
    assert planner.tool("delegate_task", key="d", **work)["task_id"] == task
    worker.tool("work_complete", task_id=task, text="done")


# Planted: everybody may reach everybody (desk, access.rs).
def test_the_access_list_holds_on_every_way_to_another_agent(serve):
    server = serve(ACCESS_RULES=" ".join(ACCESS.split()))
    mallory, planner, worker = named(server, "mallory", "planner", "worker")
    register(planner, skill("plan"))
    register(worker, skill("dig"))
    assert [agent["id"] for agent in mallory.tool("agent_list")["agents"]] == ["worker"]
    assert "plan" not in [tool["name"] for tool in mallory.ask("tools/list")["tools"]]
    work = {"title": "x", "instructions": "x"}
    assert mallory.why_not("delegate_task", **work, agent="planner") == "NOT_ALLOWED"
    assert mallory.why_not("delegate_task", **work, agents=["worker", "planner"]) == "NOT_ALLOWED"
    assert mallory.why_not("handoff_offer", to="planner", scope="all") == "NOT_ALLOWED"
    assert mallory.why_not("handoff_offer", to="worker", scope="all") == "NOT_ALLOWED"
    with pytest.raises(Refused):
        mallory.begin("plan", what="x")
    # Everybody in the directory is everybody that it may reach.
    task = mallory.tool("delegate_task", **work)["task_id"]
    assert planner.tool("work_next", wait_ms=0)["work"] == []
    assert worker.tool("work_next", wait_ms=0)["work"][0]["task_id"] == task
    over_macp = Agent(server, "mallory")
    assert code_of(over_macp.start, str(uuid.uuid4()), ["mallory", "planner"]) == "FORBIDDEN"
    assert code_of(over_macp.start, str(uuid.uuid4()), ["mallory", "worker"], mode=MODE_HANDOFF) == "FORBIDDEN"
    # Nor does it register what it may not.
    with pytest.raises(Refused) as refused:
        register(mallory, skill("plan"))
    assert refused.value.code == "NOT_ALLOWED"
    register(mallory, skill("draft-a"))


# Planted: an agent is reached whomever it shows itself to (desk, directory.rs).
def test_an_agent_that_shows_itself_to_some_is_reached_by_nobody_else(serve):
    server = serve()
    mallory, planner, helper = named(server, "mallory", "planner", "helper")
    register(helper, skill("help"), visible_to=["planner"])
    work = {"title": "x", "instructions": "x"}
    assert mallory.tool("agent_list")["agents"] == []
    assert mallory.why_not("delegate_task", **work, agent="helper") == "NOT_ALLOWED"
    assert mallory.why_not("delegate_task", **work, agents=["worker", "helper"]) == "NOT_ALLOWED"
    assert mallory.why_not("handoff_offer", to="helper", scope="all") == "NOT_ALLOWED"
    with pytest.raises(Refused):
        mallory.begin("help", what="x")
    over_macp = Agent(server, "mallory")
    assert code_of(over_macp.start, str(uuid.uuid4()), ["mallory", "helper"]) == "FORBIDDEN"
    assert planner.begin("help", what="x")
    assert planner.tool("delegate_task", **work, agent="helper")["task_id"]


# Planted: whoever could take a task may add subtasks to it (kernel, task/decide/across.rs).
def test_subtasks_need_a_part_in_the_task(server):
    planner, mallory, worker = named(server, "planner", "mallory", "worker")
    work = {"title": "dig", "instructions": "dig", "agents": ["mallory", "worker"]}
    task = planner.tool("delegate_task", **work)["task_id"]
    part = {"title": "a part", "instructions": "dig", "agent": "helper", "parent_task_id": task}
    assert mallory.why_not("delegate_task", **part) == "NOT_ASSIGNEE"
    worker.tool("work_accept", task_id=task)
    assert mallory.why_not("delegate_task", **part) == "NOT_ASSIGNEE"
    assert worker.tool("delegate_task", **part)["task_id"]
    assert planner.tool("delegate_task", **part)["task_id"]


# Planted: every character is a visible one (desk, visible.rs).
def test_names_are_what_they_look_like_and_say_whose_words_they_are(serve):
    # Ids of agents come from the operator, too: the start is refused.
    with pytest.raises(AssertionError, match="expected"):
        serve(agents=[("plan\u202ener", "acme")])
    server = serve()
    mallory, planner = named(server, "mallory", "planner")
    for unseen in "\u202e\u2066\u200b\u2060\ufeff\u00ad\U000e0041\x07":
        for arguments in [
            {"name": f"The{unseen}Server", "skills": []},
            {"name": "M", "skills": [skill(f"di{unseen}g")]},
            {"name": "M", "skills": [skill("dig", annotations={"title": f"{unseen}x"})]},
        ]:
            assert mallory.why_not("agent_register", description="d", **arguments) == "INVALID", arguments
        text = {"title": f"D{unseen}ig", "description": f"digs{unseen} holes"}
        register(mallory, skill("dig") | text)
        tools = {tool["name"]: tool for tool in planner.ask("tools/list")["tools"]}
        assert (tools["dig"]["title"], tools["dig"]["description"][:10]) == ("Dig", "digs holes")
        assert tools["dig"]["_meta"]["dev.handover/describedBy"] == {"kind": "agent", "id": "mallory"}
        assert tools["delegate_task"]["_meta"]["dev.handover/describedBy"]["kind"] == "server"
    # What agents send each other is passed on as it is.
    words = "dig\u202e \u200bhere\x07"
    planner.tool("delegate_task", title=words, instructions=words, agent="mallory")
    found = mallory.tool("work_next", wait_ms=0)["work"][0]
    assert (found["title"], found["instructions"]) == (words, words)
