"""An MCP client of the standard library, in the stateless revision, that says what its test wants it to say."""

import http.client
import itertools
import json

from server import PATIENCE, token_of

REVISION = "2026-07-28"
KEY = "dev.handover/idempotencyKey"

_ids = itertools.count(1)


def request(method, params=None, meta=None, capabilities=None):
    """The body of a request as it should be."""
    said = {
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": capabilities or {},
        **(meta or {}),
    }
    return {"jsonrpc": "2.0", "id": next(_ids), "method": method, "params": {**(params or {}), "_meta": said}}


def headers_of(body, token):
    """The headers that go with it."""
    params = body["params"]
    named = params.get("name") or params.get("uri") or params.get("taskId")
    return {
        "host": "localhost",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "authorization": f"Bearer {token}",
        "mcp-protocol-version": REVISION,
        "mcp-method": body["method"],
        **({"mcp-name": named} if named else {}),
    }


def encoded(body):
    return json.dumps(body).encode()


def raw(body, token, length=None, **more):
    """The same as bytes, for sockets; the length may be another than it has."""
    sent = encoded(body)
    headers = {**headers_of(body, token), "content-length": str(length or len(sent)), **more}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + sent


class Refused(Exception):
    """An answer that is an error, with the code of ours in it and all of its text."""

    def __init__(self, status, text, code=None):
        super().__init__(f"{status} {text}")
        self.status, self.text, self.code = status, text, code


class Client:
    """One agent on one connection."""

    def __init__(self, server, agent, tenant="acme"):
        self.agent, self.token = agent, token_of(agent, tenant)
        self.connection = http.client.HTTPConnection(*server.http, timeout=PATIENCE)

    def post(self, body, **headers):
        """Send a body, and take the answer: its status and its text."""
        self.connection.request("POST", "/mcp", json.dumps(body), headers_of(body, self.token) | headers)
        answer = self.connection.getresponse()
        return answer.status, answer.read().decode()

    def ask(self, method, params=None, meta=None, capabilities=None):
        """The result of a request."""
        status, text = self.post(request(method, params, meta, capabilities))
        # A stream of events ends with the answer.
        data = [line[5:] for line in text.splitlines() if line.startswith("data:")] or [text]
        answer = json.loads(data[-1])
        if "result" not in answer:
            raise Refused(status, text, code_in(text))
        return answer["result"]

    def tool(self, tool, /, key=None, **arguments):
        """What a tool returns for machines."""
        meta = {KEY: key} if key else None
        result = self.ask("tools/call", {"name": tool, "arguments": arguments}, meta)
        if result.get("isError"):
            text = result["content"][0]["text"]
            raise Refused(200, text, code_in(text))
        return result["structuredContent"]

    def why_not(self, tool, /, key=None, **arguments):
        """The code with which a tool refuses, or what it did instead."""
        try:
            return f"it did: {self.tool(tool, key, **arguments)}"
        except Refused as refused:
            return refused.code

    def begin(self, skill, **arguments):
        """Call a skill as a task, and give its id."""
        capabilities = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
        return self.ask("tools/call", {"name": skill, "arguments": arguments}, None, capabilities)["taskId"]


def code_in(text):
    """The code of ours that an error names: in its data, or in brackets at the end of what a tool says."""
    try:
        data = json.loads(text)["error"].get("data") or {}
        return data.get("code")
    except (ValueError, KeyError, AttributeError):
        return text.rsplit("(", 1)[-1].rstrip(").\n") if "(" in text else None
