"""Nobody takes more processor time than is theirs, and nobody waits for those who try."""

import threading
import time
import uuid

from macp_sdk.policy import build_task_policy
from over_macp import Agent, code_of, serves_the_honest, working
from over_mcp import Client, raw, request
from server import connect, get, read_to_end, token_of

# The most that the settings take, and rates that are no rates.
STEPS_MOST = 10_000_000_000
NO_RATES = {f"LIMITS_{kind}_PER_MINUTE": 0 for kind in ("STARTS", "MESSAGES", "REQUESTS")}
NO_LIMITS = {
    "LIMITS_CHECK_STEPS_MAX": STEPS_MOST,
    "LIMITS_CHECKS_MAX": 100_000,
    "LIMITS_CHECK_WAIT_MS": 60_000,
    **NO_RATES,
}


def nested(levels):
    """A schema of a few hundred bytes that is gone through twice at every level."""
    schema = {"type": "string"}
    for _ in range(levels):
        schema = {"unevaluatedProperties": schema}
    return {"type": "object", **schema}


def offering(server, schema):
    """A client that has somebody else's skill with this schema before it."""
    skill = {"name": "dig", "description": "digs", "inputSchema": schema}
    Client(server, "mallory").tool("agent_register", name="M", description="d", skills=[skill])
    return Client(server, "planner")


TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


# Planted: any number of schemas may look at one value (desk, schema/shape.rs).
def test_a_schema_whose_cost_multiplies_is_refused_where_it_comes_in(server):
    mallory, planner = Client(server, "mallory"), Client(server, "planner")
    before = server.processor_seconds()
    skill = {"name": "dig", "description": "digs", "inputSchema": nested(21)}
    assert mallory.why_not("agent_register", name="M", description="d", skills=[skill]) == "INVALID"
    task = planner.tool("delegate_task", title="x", instructions="x", agent="mallory")["task_id"]
    mallory.tool("work_accept", task_id=task)
    questions = {"q": {"message": "how?", "schema": nested(21)}}
    assert mallory.why_not("work_ask", task_id=task, questions=questions, wait_ms=0) == "INVALID"
    assert server.processor_seconds() - before < 5


# All alternatives are tried on every item, and it is the last that fits.
COSTLY = {
    "type": "object",
    "properties": {"items": {"type": "array", "items": {"anyOf": [{"const": f"n-{n}"} for n in range(2000)]}}},
}
ARGUMENTS = {"items": ["n-1999"] * 80_000}
CODES = ["CHECK_TOO_COSTLY", "CHECKS_BUSY", "RATE_LIMITED"]


def check_many(server, calls=4):
    """Have costly checks made at once, with `/healthz` in between. Gives the processor time and the answers."""
    offering(server, COSTLY)
    before = server.processor_seconds()
    answers = []

    def check():
        body = request("tools/call", {"name": "dig", "arguments": ARGUMENTS}, None, TASKS)
        answers.append(Client(server, "planner").post(body)[1])

    threads = [threading.Thread(target=check) for _ in range(calls)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert get(server.http, "/healthz").startswith("HTTP/1.1 200 ")
        serves_the_honest(server)
        time.sleep(0.1)
    return server.processor_seconds() - before, answers


def test_a_costly_check_is_stopped_and_is_paid_for(serve):
    seconds, answers = check_many(serve())
    found = [next((code for code in CODES if code in text), text) for text in answers]
    assert set(found) <= set(CODES) and "CHECK_TOO_COSTLY" in found, found
    unlimited, answers = check_many(serve(**NO_LIMITS))
    assert not any(code in text for code in CODES for text in answers)
    assert unlimited > 2 * seconds, (unlimited, seconds)


# Planted: everything before it applied again for each event.
def test_replaying_a_session_takes_time_in_proportion_to_its_length(serve):
    server = serve(**NO_RATES)
    seconds = []
    for updates in (250, 2000):
        session = str(uuid.uuid4())
        planner, worker = working(server, session)
        for number in range(updates):
            worker.update(session, str(number))
        policy = build_task_policy("policy.same", "as it is")
        planner.what_if_replay(session, policy)
        before = server.processor_seconds()
        for _ in range(10):
            planner.what_if_replay(session, policy)
        seconds.append(server.processor_seconds() - before)
    # Eight times the events: with their square it would be 64 times.
    assert seconds[1] < 30 * max(seconds[0], 0.05), seconds


def flood(server, agent, body, count=12_000):
    """Send a request many times on one connection, as fast as it is taken, and count the answers."""
    sent = raw(body, token_of(agent)) * (count - 1) + raw(body, token_of(agent), connection="close")

    def write():
        try:
            stream.sendall(sent)
        except OSError:
            # The server has answered, and does not read on.
            pass

    with connect(server.http) as stream:
        writing = threading.Thread(target=write)
        writing.start()
        answers = read_to_end(stream).count(b"HTTP/1.1 ")
        writing.join()
    return answers


def test_reads_and_refused_requests_count_against_a_rate(serve):
    server, unlimited = serve(), serve(**NO_RATES)
    refused = 0
    for agent, body in [("mallory", request("tasks/get", {"taskId": "none"}, None, TASKS)), ("planner", request("no"))]:
        flood(server, agent, body)
        # 3,600 at once, and 600 every second.
        assert server.limited("requests") > refused
        refused = server.limited("requests")
        assert flood(unlimited, agent, body) == 12_000
    assert unlimited.limited("requests") == 0
    serves_the_honest(server)


def test_refused_messages_count_against_the_rate_of_messages(serve):
    def refused(server):
        """Messages of an agent to a session that is not its own."""
        session = str(uuid.uuid4())
        working(server, session)
        mallory = Agent(server, "mallory")
        return [code_of(mallory.update, session) for _ in range(40)]

    # Ten at once, and then one every six seconds.
    codes = refused(serve(LIMITS_MESSAGES_PER_MINUTE=10))
    assert codes[0] == "FORBIDDEN" and codes.count("RATE_LIMITED") >= 20, codes
    assert set(refused(serve(**NO_RATES))) == {"FORBIDDEN"}
