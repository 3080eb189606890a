"""A task is one trace: from the span of a host on the MCP SDK, through the server, to an agent on the MACP SDK, also if the server is
killed on the way."""

import asyncio
import http.client
import json
import queue
import signal
import threading

import pytest
from conftest import PATIENCE, until
from httpx2 import AsyncClient
from macp.modes.task.v1 import task_pb2
from macp_sdk import AuthConfig, MacpClient
from macp_sdk.task import TaskSession
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

SERVER, CLIENT, INTERNAL = 2, 3, 1



class Forward(SpanExporter):
    """Sends to the receiver of the test that runs."""

    to = None

    def export(self, spans):
        return self.to.export(spans) if self.to else SpanExportResult.FAILURE


# The SDKs take whoever is the provider of the process.
FORWARD = Forward()
PROVIDER = TracerProvider(resource=Resource({"service.name": "agents"}))
PROVIDER.add_span_processor(SimpleSpanProcessor(FORWARD))
trace.set_tracer_provider(PROVIDER)
TRACER = trace.get_tracer("tests")


@pytest.fixture
def traced(receiver):
    """Has the spans of the SDKs sent to the receiver as well."""
    FORWARD.to = OTLPSpanExporter(endpoint=receiver.url)
    yield receiver
    FORWARD.to = None


class Digger:
    """An agent on the MACP SDK. It takes tasks, says how it goes, and reports when it may."""

    def __init__(self, server):
        self.may_report, self.taken, self.server = threading.Event(), queue.Queue(), server
        profile = {"name": "Digger", "skills": [{"name": "dig", "description": "digs", "inputSchema": {"type": "object"}}]}
        connection = http.client.HTTPConnection(server.http, timeout=PATIENCE)
        headers = {"authorization": "Bearer digger", "content-type": "application/json"}
        connection.request("POST", "/grid/nodes", json.dumps(profile), headers)
        assert connection.getresponse().status in (200, 201)
        self.client = self.connect()
        threading.Thread(target=self.work, daemon=True).start()

    def connect(self):
        credential = AuthConfig.for_dev_agent("digger")
        return MacpClient(target=self.server.macp, allow_insecure=True, auth=credential, default_timeout=PATIENCE)

    def work(self):
        for response in self.client.watch_sessions():
            session_id = response.event.session.session_id
            # Work of its own begins a trace of its own: nobody told it of the caller's.
            with TRACER.start_as_current_span("digging"):
                session, task = self.accept(session_id)
                self.taken.put(task)
                assert self.may_report.wait(PATIENCE)
                self.report(session_id, task)
            return

    def accept(self, session_id):
        stream = self.client.open_stream()
        stream.send_subscribe(session_id)
        while (envelope := stream.read(timeout=PATIENCE)).message_type != "TaskRequest":
            pass
        stream.close()
        task = task_pb2.TaskRequestPayload.FromString(envelope.payload).task_id
        session = TaskSession(self.client, session_id=session_id)
        session.accept_task(task)
        session.update_task(task, status="digging", progress=0.5, message="half way")
        return session, task

    def report(self, session_id, task):
        # The server may be another one by now.
        self.client = self.connect()
        TaskSession(self.client, session_id=session_id).complete_task(task, output=b'{"dug": true}', summary="dug")


def call(server, tool, arguments):
    """Has a host on the MCP SDK call a tool, within a span of its own. Returns what it was told, and that span."""

    async def calls():
        client = AsyncClient(headers={"authorization": "Bearer planner"}, timeout=PATIENCE)
        transport = streamable_http_client(f"http://{server.http}/mcp", http_client=client)
        async with client, Client(transport) as host:
            with TRACER.start_as_current_span("planning") as span:
                result = await host.call_tool(tool, arguments)
            return result, format(span.get_span_context().trace_id, "032x")

    return asyncio.run(calls())


def attributes(span):
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


def named(spans):
    return {span.name: span for span in spans}


def is_over(receiver):
    """The server's spans, when that of the whole task is among them."""
    spans = receiver.of("handover")
    return spans if any(span.kind == SERVER for span in spans) else None


def check(receiver, trace_id, root, outcome=None):
    """One trace, every span of which hangs together with the caller's."""
    spans = until(lambda: is_over(receiver), "the span of the task came")
    assert {span.trace_id.hex() for span in spans} == {trace_id}
    # The host's own spans come last: they end when it has its answer.
    until(lambda: "planning" in named(receiver.of("agents")), "the host's span came")
    everybody = {span.span_id: span for span in [*receiver.of("agents"), *spans] if span.trace_id.hex() == trace_id}
    tops = [span.name for span in everybody.values() if span.parent_span_id not in everybody]
    assert tops == ["planning"], tops
    found = named(spans)
    whole, work = found[root], found["invoke_agent digger"]
    assert whole.kind == SERVER and "tools/call" in everybody[whole.parent_span_id].name
    assert work.kind == CLIENT and work.parent_span_id == whole.span_id
    assert attributes(work)["gen_ai.operation.name"] == "invoke_agent"
    assert attributes(work)["gen_ai.agent.id"] == "digger"
    # What the agent did is part of its work, and says to which of the agent's own spans it belongs.
    (own,) = until(lambda: [span for span in receiver.of("agents") if span.name == "digging"], "the agent's own span came")
    for name in ("updated", "completed"):
        assert found[name].parent_span_id == work.span_id, name
        (link,) = found[name].links
        assert link.trace_id == own.trace_id != whole.trace_id
    assert whole.start_time_unix_nano <= work.start_time_unix_nano <= found["updated"].end_time_unix_nano
    assert found["completed"].end_time_unix_nano == work.end_time_unix_nano <= whole.end_time_unix_nano
    for span in spans:
        assert span.start_time_unix_nano <= span.end_time_unix_nano
        assert attributes(span)["gen_ai.conversation.id"] == attributes(whole)["gen_ai.conversation.id"]
        assert "half way" not in str(span), "what agents say is theirs"
    assert whole.status.code == (0 if outcome is None else 2)
    return whole


def test_a_call_of_a_skill_over_mcp_that_a_macp_agent_works_on_is_one_trace(serve, traced):
    server = serve(TRACES_URL=traced.url)
    digger = Digger(server)
    digger.may_report.set()
    result, trace_id = call(server, "dig", {"depth": 3})
    assert not result.is_error, result
    whole = check(traced, trace_id, "tools/call dig")
    said = attributes(whole)
    assert (said["mcp.method.name"], said["gen_ai.operation.name"], said["gen_ai.tool.name"]) == ("tools/call", "execute_tool", "dig")
    assert (said["handover.requester"], said["handover.began_on"]) == ("planner", "mcp")


@pytest.mark.parametrize("again", range(3))
def test_a_task_whose_server_is_killed_in_the_middle_is_one_trace(serve, traced, again):
    server = serve(TRACES_URL=traced.url)
    digger = Digger(server)
    result, trace_id = call(server, "delegate_task", {"agent": "digger", "title": "dig", "instructions": "deep"})
    assert not result.is_error, result
    digger.taken.get(timeout=PATIENCE)
    if again == 0:
        # Otherwise it may be killed before it has told anything.
        until(lambda: traced.of("handover"), "the first spans came")
    server.end(signal.SIGKILL)
    before = len(traced.of("handover"))
    server.start()
    digger.may_report.set()
    check(traced, trace_id, "tools/call")
    assert len(traced.of("handover")) > before


def test_spans_that_are_not_taken_are_sent_again_and_those_of_a_stop_come_after_it(serve, traced, tmp_path):
    secret = tmp_path / "headers"
    secret.touch(mode=0o600)
    secret.write_text("authorization: Bearer collector\nx-scope: a: b\n")
    server = serve(TRACES_URL=traced.url, TRACES_HEADERS_FILE=secret)
    traced.answers = [(503, b""), (429, b"")]
    digger = Digger(server)
    digger.may_report.set()
    result, trace_id = call(server, "dig", {})
    assert not result.is_error, result
    server.end(signal.SIGTERM)
    server.start()
    check(traced, trace_id, "tools/call dig")
    assert traced.refused == 2
    theirs = [headers for headers in traced.headers if headers.get("x-scope")]
    assert theirs and all((one["authorization"], one["x-scope"]) == ("Bearer collector", "a: b") for one in theirs)
    assert "collector" not in server.log.read_text()


def send(server, message, **headers):
    """Has alice send bob a task over Grid."""
    connection = http.client.HTTPConnection(server.http, timeout=PATIENCE)
    said = {"jsonrpc": "2.0", "id": 1, "method": "task/send", "params": {"to": "bob", "message": message}}
    headers = {"authorization": "Bearer alice", "content-type": "application/json", **headers}
    connection.request("POST", "/grid/a2a/alice", json.dumps(said), headers)
    answer = connection.getresponse()
    assert (answer.status, "error" in json.loads(answer.read())) == (200, False)


def metric(server, name):
    """A number that the server counts."""
    connection = http.client.HTTPConnection(server.admin, timeout=PATIENCE)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def test_spans_that_are_refused_for_good_are_dropped_and_counted(serve, receiver):
    server = serve(TRACES_URL=receiver.url)
    dropped, exported = "handover_spans_dropped_total", "handover_spans_exported_total"
    receiver.answers = [(400, b"")]
    send(server, "one")
    until(lambda: metric(server, dropped) > 0, "the refused spans were counted")
    assert receiver.refused == 1
    assert "spans were refused" in server.log.read_text()
    until(lambda: metric(server, "handover_spans_behind_events") == 0, "everything was told")
    before = metric(server, dropped)
    receiver.answers = [(200, b'{"partialSuccess": {"rejectedSpans": "1", "errorMessage": "too old"}}')]
    send(server, "two")
    until(lambda: metric(server, dropped) == before + 1, "the rejected span was counted")
    until(lambda: metric(server, exported) > 0, "the others of the same request were counted")
    assert "too old" in server.log.read_text()
    count = metric(server, exported)
    send(server, "three")
    until(lambda: receiver.of("handover"), "what follows is taken")
    until(lambda: metric(server, exported) > count, "what follows is counted")
    assert metric(server, dropped) == before + 1


def test_nothing_is_told_of_what_nobody_samples_and_without_an_address_nothing_at_all(serve, receiver):
    with_address, without = serve(TRACES_URL=receiver.url), serve()
    for server in (with_address, without):
        for flags in ("00", "01"):
            send(server, flags, traceparent=f"00-4bf92f3577b34da6a3ce929d0e0e47{flags}-00f067aa0ba902b7-{flags}")
    until(lambda: receiver.of("handover"), "the spans of the sampled one came")
    until(lambda: metric(with_address, "handover_spans_behind_events") == 0, "everything was told")
    traces = {span.trace_id.hex() for span in receiver.of("handover")}
    assert traces == {"4bf92f3577b34da6a3ce929d0e0e4701"}
