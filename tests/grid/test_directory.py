"""The directory: registration and profile, presence, status and search."""

import secrets

import pytest
from agent import Agent, exchange
from conftest import refused, until


def register(agent, **profile):
    return agent.rest("POST", "/grid/nodes", {"name": agent.name, **profile})


def shown(viewer, agent):
    return viewer.rest("GET", f"/grid/nodes/{agent.name}")


def found(viewer, query, **more):
    return [node["nodeId"] for node in viewer.rest("POST", "/grid/search", {"query": query, **more})["nodes"]]


def test_an_agent_registers_and_others_see_its_profile(agent):
    alice, bob = agent("alice"), agent("bob")
    assert refused(shown, alice, bob).status == 404
    takes = {"type": "object", "properties": {"text": {"type": "string"}}}
    skill = {"name": "count", "title": "Count words", "description": "counts the words of a text", "inputSchema": takes}
    answer = bob.http("POST", "/grid/nodes", {"name": "Bob", "description": "counts", "skills": [skill]})
    assert answer.status == 201
    node = shown(alice, bob)
    assert (node["nodeId"], node["name"], node["description"], node["status"]) == (
        bob.name,
        "Bob",
        "counts",
        "available",
    )
    assert node["skills"] == [skill]
    # The same once more changes nothing.
    assert bob.http("POST", "/grid/nodes", {"name": "Bob", "description": "counts", "skills": [skill]}).status == 200
    assert bob.name in [one["nodeId"] for one in alice.rest("GET", "/grid/nodes")["nodes"]]


def test_a_patch_changes_what_it_names_and_a_put_everything(agent):
    bob = agent("bob")
    register(bob, description="counts", skills=[{"name": "count", "description": "counts"}])
    node = bob.rest("PATCH", f"/grid/nodes/{bob.name}", {"description": "counts quickly"})
    assert (node["description"], [skill["name"] for skill in node["skills"]]) == ("counts quickly", ["count"])
    node = bob.rest("PUT", f"/grid/nodes/{bob.name}", {"name": "Bob"})
    assert (node["name"], node["description"], node["skills"]) == ("Bob", "", [])
    assert shown(agent("alice"), bob)["name"] == "Bob"


def test_nobody_changes_another_agents_profile(agent):
    alice, bob = agent("alice"), agent("bob")
    register(bob, description="counts")
    path = f"/grid/nodes/{bob.name}"
    for verb, at, body in [
        ("PUT", path, {"name": "mine"}),
        ("PATCH", path, {"name": "mine"}),
        ("POST", path + "/heartbeat", {}),
        ("PUT", path + "/status", {"status": "busy"}),
    ]:
        assert refused(alice.rest, verb, at, body).status == 403
    assert (shown(alice, bob)["name"], shown(alice, bob)["status"]) == (bob.name, "available")


def test_an_unknown_field_is_named(agent):
    bob = agent("bob")
    assert "`skils`" in refused(bob.rest, "POST", "/grid/nodes", {"name": "Bob", "skils": []}).message
    assert "`nane`" in refused(bob.rest, "PATCH", f"/grid/nodes/{bob.name}", {"nane": "x"}).message
    assert "`wrong`" in refused(bob.rest, "POST", "/grid/search", {"query": "x", "wrong": 1}).message
    assert "`name`" in refused(bob.rest, "POST", "/grid/nodes", {}).message


def test_a_heartbeat_is_when_an_agent_was_last_seen(agent):
    alice, bob = agent("alice"), agent("bob")
    register(bob)
    beat = bob.rest("POST", f"/grid/nodes/{bob.name}/heartbeat", {})
    assert beat["nodeId"] == bob.name
    assert shown(alice, bob)["lastSeen"] >= beat["at"][:19]


def test_a_heartbeat_needs_no_body(agent):
    bob = agent("bob")
    register(bob)
    path, token = f"/grid/nodes/{bob.name}/heartbeat", {"authorization": f"Bearer {bob.name}"}
    assert exchange(bob.address, "POST", path, None, token).status == 200


def test_an_agent_is_online_while_a_stream_of_it_is_open(agent):
    alice, bob = agent("alice"), agent("bob")
    register(bob)
    assert shown(alice, bob)["online"] is False
    first, second = bob.listen(), bob.listen()
    assert shown(alice, bob)["online"] is True
    first.close()
    assert shown(alice, bob)["online"] is True
    second.close()
    until(lambda: shown(alice, bob)["online"] is False, "the agent is offline")
    assert shown(alice, bob)["lastSeen"]


def test_do_not_disturb_refuses_new_tasks_and_existing_conversations_go_on(agent):
    alice, bob = agent("alice"), agent("bob")
    register(bob)
    task = alice.call("task/send", to=bob.name, message="count")["task"]["taskId"]
    node = bob.rest("PUT", f"/grid/nodes/{bob.name}/status", {"status": "do_not_disturb", "text": "asleep"})
    assert (node["status"], node["statusText"]) == ("do_not_disturb", "asleep")
    for more in ({}, {"queue": True}):
        no = refused(alice.call, "task/send", to=bob.name, message="count again", **more)
        assert no.name == "DO_NOT_DISTURB" and "asleep" in no.message
    assert shown(alice, bob)["status"] == "do_not_disturb"
    # What was begun goes on, and it may begin something itself.
    alice.call("message/send", taskId=task, message="quickly")
    bob.call("task/read", taskId=task)
    bob.call("message/send", taskId=task, message="three")
    assert alice.call("message/send", to=bob.name, message="thanks")["task"]["taskId"] == task
    assert alice.call("task/complete", taskId=task)["task"]["state"] == "completed"
    assert bob.call("task/send", to=alice.name, message="and you?")["task"]["state"] == "submitted"
    bob.rest("PUT", f"/grid/nodes/{bob.name}/status", {"status": "available"})
    assert alice.call("task/send", to=bob.name, message="again")["task"]["state"] == "submitted"


def test_an_agent_that_is_busy_takes_tasks(agent):
    alice, bob = agent("alice"), agent("bob")
    register(bob)
    bob.rest("PUT", f"/grid/nodes/{bob.name}/status", {"status": "busy"})
    assert shown(alice, bob)["status"] == "busy"
    assert alice.call("task/send", to=bob.name, message="count")["task"]["state"] == "submitted"
    assert (
        "available, busy or do_not_disturb"
        in refused(bob.rest, "PUT", f"/grid/nodes/{bob.name}/status", {"status": "lazy"}).message
    )


def test_a_status_outlives_a_registration_and_a_restart(serve):
    server = serve()
    bob = Agent(server.address, "bob")
    register(bob)
    bob.rest("PUT", "/grid/nodes/bob/status", {"status": "do_not_disturb", "text": "asleep"})
    assert register(bob, description="new")["status"] == "do_not_disturb"
    server.kill()
    server.start()
    assert (shown(bob, bob)["status"], shown(bob, bob)["statusText"]) == ("do_not_disturb", "asleep")


@pytest.fixture
def library(agent):
    """Three agents whose words nobody else has, and one that looks for them."""
    seeker = agent("seeker")
    # A word that is far from any other.
    mark = "".join(secrets.choice("bcdfghjklmnpqrstvwxz") for _ in range(16))
    agents = {}
    for name, description in [
        ("palimpsest", "restores manuscripts"),
        ("incunable", "catalogues manuscripts"),
        ("colophon", "binds books"),
    ]:
        agents[name] = agent(name)
        register(agents[name], description=f"{description} in {mark}")
    return seeker, mark, agents


def test_a_search_finds_whole_words_beginnings_of_words_and_words_with_a_typing_error(library):
    seeker, mark, agents = library
    restores = agents["palimpsest"].name
    both = sorted([restores, agents["incunable"].name])
    assert sorted(found(seeker, f"manuscripts {mark}")) == both
    assert sorted(found(seeker, f"manuscr {mark}")) == both
    assert sorted(found(seeker, f"manuscirpts {mark}")) == both
    assert sorted(found(seeker, f"MANUSCRIPTS {mark.upper()}")) == both
    assert found(seeker, f"restores manuscripts {mark}")[0] == restores
    assert found(seeker, "zzzzunheard") == []
    assert "1 to 8 words" in refused(found, seeker, "").message


def test_a_search_comes_page_by_page(library):
    seeker, mark, agents = library
    pages, cursor = [], None
    while True:
        page = seeker.rest("POST", "/grid/search", {"query": mark, "max": 1} | ({"cursor": cursor} if cursor else {}))
        pages.append([node["nodeId"] for node in page["nodes"]])
        if (cursor := page["nextCursor"]) is None:
            break
    assert all(len(page) <= 1 for page in pages)
    assert sorted(sum(pages, [])) == sorted(agent.name for agent in agents.values())


def test_an_agent_that_shows_itself_to_some_is_not_there_for_others(library, agent):
    seeker, mark, agents = library
    hidden, friend = agent("hidden"), agent("friend")
    register(hidden, description=f"keeps secrets of {mark}", visibleTo=[friend.name])
    assert hidden.name in found(friend, mark) and hidden.name not in found(seeker, mark)
    assert hidden.name not in found(seeker, "secrets")
    assert shown(friend, hidden)["nodeId"] == hidden.name
    nobody = agent("nobody")
    here, gone = (
        exchange(seeker.address, "GET", f"/grid/nodes/{one.name}", None, seeker.headers()) for one in (hidden, nobody)
    )
    assert (here.status, here.body.replace(hidden.name.encode(), b"x")) == (
        gone.status,
        gone.body.replace(nobody.name.encode(), b"x"),
    )
    assert hidden.name not in [one["nodeId"] for one in seeker.rest("GET", "/grid/nodes")["nodes"]]
    hidden.rest("PATCH", f"/grid/nodes/{hidden.name}", {"visibleTo": []})
    assert hidden.name in found(seeker, mark)


def test_an_agent_that_leaves_is_found_no_more(library):
    seeker, mark, agents = library
    gone = agents["colophon"]
    assert refused(seeker.rest, "DELETE", f"/grid/nodes/{seeker.name}").status == 404
    assert gone.rest("DELETE", f"/grid/nodes/{gone.name}") == {"removed": True}
    assert refused(shown, seeker, gone).status == 404
    assert gone.name not in found(seeker, mark)
