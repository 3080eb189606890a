"""Static tokens: whose each is, which tenant, and what another tenant's agent sees: nothing."""

import subprocess

import grpc
import pytest
from conftest import BINARY, Server
from macp_sdk import AuthConfig, MacpAckError, MacpClient, MacpSdkError
from macp_sdk.client import macp_error_code
from macp_sdk.policy import build_task_policy
from macp_sdk.task import TaskSession


def new_token(file, agent, *more):
    made = subprocess.run([BINARY, "token", "--agent", agent, *more], capture_output=True, text=True, check=True)
    file.write_text((file.read_text() if file.exists() else "") + made.stdout)
    token = made.stderr.strip().rsplit(" ", 1)[-1]
    assert token not in file.read_text()
    return token


@pytest.fixture
def place(tmp_path):
    file = tmp_path / "tokens.toml"
    tokens = {
        "planner": new_token(file, "planner", "--tenant", "acme"),
        "worker": new_token(file, "worker", "--tenant", "acme"),
        "auditor": new_token(file, "auditor", "--tenant", "acme", "--role", "observer"),
        "foreign": new_token(file, "planner", "--tenant", "other"),
    }
    server = Server(tmp_path / "data", tokens=file).start()

    def client(name, token=None):
        auth = AuthConfig.for_bearer(token or tokens[name], sender_hint=name)
        return MacpClient(target=server.target, allow_insecure=True, auth=auth, default_timeout=20.0)

    yield client
    server.kill()


def started(client):
    session = TaskSession(client)
    session.start(intent="x", participants=["planner", "worker"], ttl_ms=60_000)
    return session


def refused(call, *args):
    with pytest.raises(grpc.RpcError) as caught:
        call(*args)
    return macp_error_code(caught.value)


def test_a_token_that_is_nobodys_is_unauthenticated(place):
    for token in ("planner", "hand_" + "0" * 64):
        with pytest.raises(MacpAckError) as caught:
            started(place("planner", token))
        assert caught.value.failure.code == "UNAUTHENTICATED"


def test_another_tenants_session_does_not_exist(place):
    session = started(place("planner"))
    foreign = place("foreign")
    assert refused(foreign.get_session, session.session_id) == "SESSION_NOT_FOUND"
    assert foreign.list_sessions() == []
    mine = AuthConfig.for_bearer(foreign.auth.bearer_token, sender_hint="planner")
    again = TaskSession(foreign, session_id=session.session_id, auth=mine)
    assert again.start(intent="mine", participants=["planner", "worker"], ttl_ms=60_000).ok


def test_an_observer_sees_every_session_of_its_tenant_and_changes_none(place):
    session = started(place("planner"))
    auditor = place("auditor")
    assert [one.session_id for one in auditor.list_sessions()] == [session.session_id]
    assert auditor.get_session(session.session_id).metadata.initiator == "planner"
    assert not auditor.cancel_session(session.session_id, reason="no", raise_on_nack=False).ok
    with pytest.raises(MacpAckError) as caught:
        auditor.cancel_session(session.session_id, reason="no")
    assert caught.value.failure.code == "FORBIDDEN"
    with pytest.raises(MacpSdkError) as caught:
        auditor.register_policy(build_task_policy("policy.mine", "not for an observer"))
    assert caught.value.macp_code == "FORBIDDEN"
