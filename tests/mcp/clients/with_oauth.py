"""The OAuth of the official SDK for Python: all that its `OAuthClientProvider` is given is the address of the endpoint. What
else it needs it finds out from the 401 and the metadata. The issuer of the tokens is in this file.

    with_oauth.py HANDOVER DATA

HANDOVER is the binary, DATA a directory for the data of the servers, which are told about the issuer as docs/identity.md
shows.
"""

import asyncio
import base64
import ctypes
import hashlib
import json
import os
import pathlib
import secrets
import signal
import socket
import sys
import threading
import time
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from httpx2 import AsyncClient, AsyncHTTPTransport, Request
from mcp import Client, MCPError
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
from plays import Plays, version_of

REVISIONS = {"auto": "2026-07-28", "legacy": "2025-11-25"}
# The names of docs/identity.md.
ENDPOINT = "https://agents.example.com/mcp"
ISSUER = "https://login.example.com/realms/agents"
ELSEWHERE = "https://elsewhere.example.com/mcp"
USER = "ann"
# Nobody is there: the browser reads the code from where it is sent.
CALLBACK = "http://127.0.0.1/callback"


class Issuer(ThreadingHTTPServer):
    """An authorization server: metadata (RFC 8414), registration (RFC 7591), codes with PKCE (RFC 7636, S256 only), and
    tokens for what the client names as the resource (RFC 8707). Whoever comes to /authorize is signed in as `USER`."""

    daemon_threads = True

    def __init__(self, name=None):
        super().__init__(("127.0.0.1", 0), Answer)
        self.here = f"http://127.0.0.1:{self.server_port}"
        self.name = name or self.here
        self.path = urlsplit(self.name).path
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.clients, self.codes = {}, {}
        #: What tokens were issued, and the audience of those to come if it is not what was asked for.
        self.issued, self.audience = [], None

    def metadata(self):
        return 200, {
            "issuer": self.name,
            "authorization_endpoint": f"{self.name}/authorize",
            "token_endpoint": f"{self.name}/token",
            "registration_endpoint": f"{self.name}/register",
            "jwks_uri": f"{self.name}/jwks",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code"],
            "token_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }

    def jwks(self):
        key = jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return 200, {"keys": [{**key, "kid": "one", "alg": "ES256", "use": "sig"}]}

    def register(self, asked):
        client = secrets.token_hex(8)
        self.clients[client] = asked["redirect_uris"]
        return 201, {**asked, "client_id": client, "token_endpoint_auth_method": "none"}

    def authorize(self, asked):
        redirect = asked.get("redirect_uri")
        due = {"response_type": "code", "code_challenge_method": "S256"}
        if redirect not in self.clients.get(asked.get("client_id"), ()):
            return 400, {"error": "invalid_request"}
        if any(asked.get(key) != value for key, value in due.items()) or not asked.get("resource"):
            return 400, {"error": "invalid_request"}
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        return 302, f"{redirect}?{urlencode({'code': code, 'state': asked['state'], 'iss': self.name})}"

    def token(self, asked):
        # A code is good once.
        authorized = self.codes.pop(asked.get("code"), {})
        challenge = base64.urlsafe_b64encode(hashlib.sha256(asked.get("code_verifier", "").encode()).digest())
        same = ("client_id", "redirect_uri", "resource")
        if (
            asked.get("grant_type") != "authorization_code"
            or authorized.get("code_challenge") != challenge.decode().rstrip("=")
            or any(asked.get(key) != authorized[key] for key in same)
        ):
            return 400, {"error": "invalid_grant"}
        token = self.signed(self.audience or asked["resource"])
        self.issued.append(token)
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": 300}

    def signed(self, audience):
        now = int(time.time())
        claims = {"iss": self.name, "sub": USER, "aud": audience, "iat": now, "exp": now + 300}
        return jwt.encode(claims, self.key, "ES256", {"kid": "one"})


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        url, issuer = urlsplit(self.path), self.server
        pages = {
            f"/.well-known/oauth-authorization-server{issuer.path}": issuer.metadata,
            f"{issuer.path}/jwks": issuer.jwks,
            f"{issuer.path}/authorize": lambda: issuer.authorize(dict(parse_qsl(url.query))),
        }
        self.answer(*pages.get(url.path, lambda: (404, {}))())

    def do_POST(self):
        body, issuer = self.rfile.read(int(self.headers["content-length"])), self.server
        pages = {
            f"{issuer.path}/register": lambda: issuer.register(json.loads(body)),
            f"{issuer.path}/token": lambda: issuer.token(dict(parse_qsl(body.decode()))),
        }
        self.answer(*pages.get(self.path, lambda: (404, {}))())

    def answer(self, status, what):
        self.send_response(status)
        if status == 302:
            self.send_header("location", what)
            self.end_headers()
        else:
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(what).encode())

    def log_message(self, form, *values):
        print("issuer:", form % values, file=sys.stderr)


class Proxies(AsyncHTTPTransport):
    """In the place of the name service, and of proxies that terminate TLS for these names."""

    def __init__(self, **served):
        super().__init__()
        self.served = {f"{name}.example.com": port for name, port in served.items()}

    async def handle_async_request(self, request):
        url = request.url.copy_with(scheme="http", host="127.0.0.1", port=self.served[request.url.host])
        kept = {"headers": request.headers, "stream": request.stream, "extensions": request.extensions}
        return await super().handle_async_request(Request(request.method, url, **kept))


@contextmanager
def issuing(name=None):
    with Issuer(name) as issuer:
        thread = threading.Thread(target=issuer.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield issuer
        finally:
            issuer.shutdown()
            thread.join()


def end_with_parent():
    """Whoever kills us kills the server."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


@asynccontextmanager
async def serving(name, issuer, audience, http="127.0.0.1:0", **settings):
    """A server that knows whom this issuer knows. Gives its port."""
    binary, data = sys.argv[1], pathlib.Path(sys.argv[2], name)
    settings |= {
        "IDENTITY_JWT_KEYS": f"{issuer.here}{issuer.path}/jwks",
        "IDENTITY_JWT_ISSUER": issuer.name,
        "IDENTITY_JWT_AUDIENCE": audience,
    }
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HANDOVER_")}
    environment |= {f"HANDOVER_{key}": value for key, value in settings.items()}
    data.mkdir(parents=True, mode=0o700)
    server = await asyncio.create_subprocess_exec(
        *(binary, "serve", "--json", "--data", data, "--http", http, "--macp", "127.0.0.1:0"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env=environment,
        preexec_fn=end_with_parent,
    )
    try:
        ready = await server.stdout.readline()
        assert ready, "expected the server to be ready, found its end"
        yield int(json.loads(ready)["http"].rpartition(":")[2])
        server.terminate()
        ended = await server.wait()
        assert ended == 0, f"expected the server to end well, found {ended}"
    finally:
        if server.returncode is None:
            server.kill()
            await server.wait()


class Memory:
    """What a client keeps: at first nothing, so that it has to find out everything."""

    def __init__(self):
        self.tokens = self.client_info = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client_info

    async def set_client_info(self, client_info):
        self.client_info = client_info


class Person:
    """Somebody new: a client that is told the address and nothing else, and a browser that goes where it is sent."""

    def __init__(self, url, transport=AsyncHTTPTransport):
        self.url, self.transport = url, transport
        #: What the client did: the method and the address of each request, and the status of the response.
        self.did = []
        #: What the server said when it refused.
        self.challenges = []
        self.back = ""

    @asynccontextmanager
    async def connected(self, mode):
        about = OAuthClientMetadata(client_name="stranger", redirect_uris=[CALLBACK])
        auth = OAuthClientProvider(self.url, about, Memory(), self.go, self.come_back)
        hooks = {"response": [self.note]}
        http = AsyncClient(auth=auth, transport=self.transport(), timeout=20, event_hooks=hooks)
        async with http, Client(streamable_http_client(self.url, http_client=http), mode=mode) as it:
            yield it

    async def note(self, response):
        self.did.append((response.request.method, str(response.request.url), response.status_code))
        if response.status_code == 401:
            self.challenges.append(response.headers["www-authenticate"])

    async def go(self, url):
        async with AsyncClient(transport=self.transport()) as browser:
            back = await browser.get(url)
        assert back.status_code == 302, f"expected to be sent back with a code, found {back.status_code} {back.text}"
        self.back = back.headers["location"]

    async def come_back(self):
        assert self.back.startswith(f"{CALLBACK}?"), f"expected {CALLBACK}, found {self.back}"
        return AuthorizationCodeResult(**dict(parse_qsl(urlsplit(self.back).query)))

    def signed_in(self, issuer):
        """What the client did until it had its token, if it did what MCP wants: all of it once, and nothing else."""
        endpoint, provider = urlsplit(self.url), urlsplit(issuer.name)
        server, login = (f"{each.scheme}://{each.netloc}" for each in (endpoint, provider))
        metadata = f"{server}/.well-known/oauth-protected-resource/mcp"
        due = [
            ("POST", self.url, 401),
            ("GET", metadata, 200),
            ("GET", f"{login}/.well-known/oauth-authorization-server{provider.path}", 200),
            ("POST", f"{issuer.name}/register", 201),
            ("POST", f"{issuer.name}/token", 200),
        ]
        assert self.did[: len(due)] == due, f"expected {due}, found {self.did}"
        first = f'Bearer resource_metadata="{metadata}"'
        assert self.challenges[0] == first, f"expected {first}, found {self.challenges}"
        assert len(issuer.issued) == 1, f"expected one token, found {len(issuer.issued)}"
        return self.did[len(due) :]


async def signs_in(mode, issuer, person):
    """Get a token and use it. The server then knows who it is: nobody told it but the issuer."""
    issuer.issued.clear()
    async with person.connected(mode) as it:
        revision, tools = it.protocol_version, (await it.list_tools()).tools
        wanted = {"title": "Q4 sales", "instructions": "Find the trend", "agent": "analyst", "queue": True}
        result = await it.call_tool("delegate_task", wanted)
    assert revision == REVISIONS[mode], f"expected {REVISIONS[mode]}, found {revision}"
    names = [tool.name for tool in tools]
    assert "delegate_task" in names, f"expected delegate_task among the tools, found {names}"
    assert not result.is_error, f"expected no error, found {result}"
    requester = result.structured_content["requester"]
    assert requester == USER, f"expected the task to be of {USER}, found {requester}"
    rest = person.signed_in(issuer)
    welcome = [url == person.url and status != 401 for _, url, status in rest]
    assert welcome and all(welcome), f"expected the token to be good for {person.url}, found {rest}"


async def as_documented():
    """With names, an endpoint behind a proxy, and an issuer that has a path."""
    with issuing(ISSUER) as issuer:
        async with serving("as_documented", issuer, f"{ENDPOINT},handover", MCP_RESOURCE=ENDPOINT) as port:
            for mode in REVISIONS:
                await signs_in(mode, issuer, Person(ENDPOINT, partial(Proxies, agents=port, login=issuer.server_port)))


async def on_loopback():
    """Without names, proxies and TLS: the resource is the address that the client used."""
    with issuing() as issuer, socket.socket() as kept:
        # The audience has to be known before the server is: this keeps a port for it until it listens there.
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        http = "{}:{}".format(*kept.getsockname())
        async with serving("on_loopback", issuer, f"http://{http}/mcp", http):
            for mode in REVISIONS:
                await signs_in(mode, issuer, Person(f"http://{http}/mcp"))


async def other_audience():
    """A token of the same issuer for the same agent, which is meant for somebody else, is refused."""
    with issuing(ISSUER) as issuer:
        async with serving("other_audience", issuer, f"{ENDPOINT},handover", MCP_RESOURCE=ENDPOINT) as port:
            issuer.audience = ELSEWHERE
            proxies = partial(Proxies, agents=port, login=issuer.server_port)
            person = Person(ENDPOINT, proxies)
            found = None
            async with person.connected("2026-07-28") as it:
                try:
                    found = await it.list_tools()
                except MCPError as error:
                    print(f"refused: {error}", file=sys.stderr)
            assert found is None, f"expected a refusal, found {found}"
            rest = person.signed_in(issuer)
            assert rest == [("POST", ENDPOINT, 401)], f"expected a refusal, found {rest}"
            assert 'error="invalid_token"' in person.challenges[1], f"expected invalid_token, found {person.challenges}"
            # Everything but the audience is the same.
            for audience, due in [
                (ENDPOINT, 200),
                ("handover", 200),
                ([ELSEWHERE, ENDPOINT], 200),
                (ELSEWHERE, 401),
                (f"{ENDPOINT}/other", 401),
                (ENDPOINT.removesuffix("/mcp"), 401),
            ]:
                answer = await ping(proxies, issuer.signed(audience))
                assert answer.status_code == due, f"expected {due} for the audience {audience}, found {answer.text}"
                assert due == 200 or "audience" in answer.text, f"expected to be told why, found {answer.text}"


async def ping(proxies, token):
    headers = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
    async with AsyncClient(transport=proxies(), headers=headers, timeout=20) as http:
        return await http.post(ENDPOINT, json={"jsonrpc": "2.0", "id": 1, "method": "ping"})


if __name__ == "__main__":
    asyncio.run(Plays(version_of("mcp"), "OAuth").run(as_documented, on_loopback, other_audience))
