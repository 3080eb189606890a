"""A secure channel, and agents whose tokens an issuer has signed. The certificate and the keys are made by OpenSSL."""

import base64
import json
import shutil
import subprocess
import time

import pytest
from conftest import Server
from macp_sdk import AuthConfig, MacpAckError, MacpClient
from macp_sdk.task import TaskSession

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


def openssl(*args, given=None):
    return subprocess.run(["openssl", *args], input=given, capture_output=True, check=True).stdout


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Issuer:
    def __init__(self, place):
        self.key = place / "issuer.pem"
        self.keys = place / "keys.json"
        openssl("genrsa", "-out", self.key, "2048")
        modulus = openssl("rsa", "-in", self.key, "-noout", "-modulus").decode().strip().split("=")[1]
        public = {"kty": "RSA", "kid": "one", "use": "sig", "n": base64url(bytes.fromhex(modulus)), "e": "AQAB"}
        self.keys.write_text(json.dumps({"keys": [public]}))

    def token(self, agent, lasts=3600):
        header = {"alg": "RS256", "typ": "JWT", "kid": "one"}
        claims = {"iss": "https://issuer", "aud": "handover", "sub": agent, "exp": int(time.time()) + lasts}
        message = ".".join(base64url(json.dumps(part).encode()) for part in (header, claims))
        signature = openssl("dgst", "-sha256", "-sign", self.key, given=message.encode())
        return f"{message}.{base64url(signature)}"


@pytest.fixture
def place(tmp_path):
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
        *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        *("-keyout", key, "-out", certificate),
    )
    issuer = Issuer(tmp_path)
    settings = {
        "IDENTITY_JWT_KEYS": issuer.keys,
        "IDENTITY_JWT_ISSUER": "https://issuer",
        "IDENTITY_JWT_AUDIENCE": "handover",
        "TLS_CERTIFICATE": certificate,
        "TLS_KEY": key,
    }
    server = Server(tmp_path / "data", settings=settings).start()

    def client(agent, token=None):
        auth = AuthConfig.for_bearer(token or issuer.token(agent), sender_hint=agent)
        trusted = certificate.read_bytes()
        return MacpClient(target=server.target, root_certificates=trusted, auth=auth, default_timeout=20.0)

    yield client, issuer
    server.kill()


def test_a_task_lives_over_a_secure_channel_between_agents_with_issued_tokens(place):
    client, _ = place
    planner, worker = client("planner"), client("worker")
    session = TaskSession(planner)
    session.start(intent="x", participants=["planner", "worker"], ttl_ms=60_000)
    session.request_task("t1", "title", instructions="do it", requested_assignee="worker")
    session.accept_task("t1", sender="worker", auth=worker.auth)
    session.complete_task("t1", output=b"done", sender="worker", auth=worker.auth)
    assert session.commit(action="task.completed", authority_scope="x", reason="delivered").ok


def test_a_token_that_has_expired_is_unauthenticated(place):
    client, issuer = place
    with pytest.raises(MacpAckError) as caught:
        late = TaskSession(client("planner", issuer.token("planner", lasts=-3600)))
        late.start(intent="x", participants=["planner", "worker"], ttl_ms=60_000)
    assert caught.value.failure.code == "UNAUTHENTICATED"
