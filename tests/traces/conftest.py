"""A server, and a receiver of OTLP that understands what arrives with OpenTelemetry's own messages."""

import base64
import http.server
import json
import os
import pathlib
import signal
import subprocess
import threading
import time

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

BINARY = pathlib.Path(os.environ["HANDOVER_BINARY"])

# How long anything may take before a test has failed: long, because the machine may be busy.
PATIENCE = 60.0


def until(is_so, what):
    """Wait for a condition, and say what it was if it does not come."""
    deadline = time.monotonic() + PATIENCE
    while not (found := is_so()):
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.02)
    return found


def understood(content_type, body):
    """A request as OpenTelemetry's messages have it. OTLP's JSON has ids in hexadecimal, that of protocol buffers in base64; a field
    that nobody knows is an error."""
    request = ExportTraceServiceRequest()
    if content_type == "application/x-protobuf":
        request.ParseFromString(body)
        return request
    assert content_type == "application/json"

    def ids(value):
        if isinstance(value, list):
            return [ids(one) for one in value]
        if isinstance(value, dict):
            return {
                key: base64.b64encode(bytes.fromhex(one)).decode() if key in ("traceId", "spanId", "parentSpanId") else ids(one)
                for key, one in value.items()
            }
        return value

    return json_format.ParseDict(ids(json.loads(body)), request)


class Receiver:
    """Takes spans, or refuses them with `answers`, each a status and what is said with it. What arrives twice under one id must be the
    same."""

    def __init__(self):
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                status, said = receiver.take(self.path, self.headers, body)
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_):
                pass

        self.spans, self.wrong, self.headers, self.answers, self.refused = {}, [], [], [], 0
        self.lock = threading.Lock()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1/traces"

    def take(self, path, headers, body):
        with self.lock:
            self.headers.append(dict(headers))
            if self.answers:
                self.refused += 1
                return self.answers.pop(0)
            try:
                assert path == "/v1/traces"
                request = understood(headers["content-type"], body)
                for resource in request.resource_spans:
                    service = {one.key: one.value.string_value for one in resource.resource.attributes}["service.name"]
                    for span in (span for scope in resource.scope_spans for span in scope.spans):
                        known = self.spans.setdefault((span.trace_id.hex(), span.span_id.hex()), (service, span))
                        assert known == (service, span), f"{known} and {span} have one id"
            except Exception as error:
                self.wrong.append(error)
                return 400, b""
            return 200, b"{}"

    def of(self, service):
        with self.lock:
            assert not self.wrong, self.wrong
            return [span for found, span in self.spans.values() if found == service]


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()
    assert not made.wrong, made.wrong


class Server:
    """One server process on a data directory of its own. Started again, it has the same data and the same ports."""

    def __init__(self, place, **settings):
        self.data, self.log, self.settings = place / "data", place / "log", settings
        self.http = self.macp = self.admin = "127.0.0.1:0"
        self.process = None

    def start(self):
        addresses = ["--http", self.http, "--macp", self.macp, "--admin", self.admin]
        command = [BINARY, "serve", "--json", "--data", self.data, *addresses]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HANDOVER_")}
        environment |= {f"HANDOVER_{name}": str(value) for name, value in self.settings.items()}
        with self.log.open("a") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment, text=True)
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        ready = json.loads(line)
        self.http, self.macp, self.admin = ready["http"], ready["macp"], ready["admin"]
        return self

    def end(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        self.process.wait(PATIENCE)
        self.process.stdout.close()


@pytest.fixture
def serve(tmp_path):
    """Starts servers that end with the test."""
    servers = []

    def start(**settings):
        place = tmp_path / str(len(servers))
        place.mkdir()
        servers.append(Server(place, **settings).start())
        return servers[-1]

    yield start
    for server in servers:
        if server.process.poll() is None:
            server.end()
