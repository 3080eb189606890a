"""A MACP agent that does tasks. It takes every task that it is asked to do, says how far it is, takes steers into account, stands
still while the task is paused, and reports. Arguments: seconds for each step (1), its name (analyst)."""

import collections
import os
import sys
import threading
import time

from macp.modes.task.v1 import task_pb2
from macp.v1 import core_pb2, envelope_pb2
from macp_sdk import AuthConfig, MacpAckError, MacpClient
from macp_sdk.task import TaskSession

STEPS = ["reading the table", "cleaning the rows", "adding up the months", "comparing the months", "looking for the trend"]
CHECKING = ["reading the text", "checking the numbers"]
NOT_ENDED = (envelope_pb2.SESSION_STATE_OPEN, envelope_pb2.SESSION_STATE_SUSPENDED)

pace = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
name = sys.argv[2] if len(sys.argv) > 2 else "analyst"
# In development the token is the agent's id; a real token is AuthConfig.for_bearer(token, sender_hint=name).
auth = AuthConfig.for_dev_agent(name)
client = MacpClient(target=os.environ.get("HANDOVER_MACP", "127.0.0.1:50051"), allow_insecure=True, auth=auth)
steers = collections.defaultdict(list)  # session → what its requester has said since the task began


def hear_orders():
    """What requesters order comes as signals that name their session."""
    for response in client.watch_signals():
        signal = core_pb2.SignalPayload.FromString(response.envelope.payload)
        if signal.signal_type == "task.steer":
            steers[signal.correlation_session_id].append(signal.data.decode())


def say(text):
    print(f"{name:8} MACP  {text}", flush=True)


def update(session, task, progress, message):
    """Say how far it is. While the session is paused that is refused: try again until it goes on, or has ended."""
    while True:
        try:
            return session.update_task(task, status="running", progress=progress, message=message)
        except MacpAckError as refused:
            if refused.failure.code != "SESSION_NOT_OPEN" or session.metadata().metadata.state not in NOT_ENDED:
                raise
            time.sleep(pace)


def work(session_id):
    """One task, from its request to the report."""
    session = TaskSession(client, session_id=session_id, auth=auth)
    stream = client.open_stream()
    stream.send_subscribe(session_id)
    while (envelope := stream.read()).message_type != "TaskRequest":
        pass
    stream.close()
    request = task_pb2.TaskRequestPayload.FromString(envelope.payload)
    if envelope.sender == name or request.requested_assignee not in ("", name):
        return
    task = request.task_id
    try:
        session.accept_task(task)
    except MacpAckError:
        return  # somebody has it already
    try:
        say(f"took {request.title!r} from {envelope.sender}")
        steps = CHECKING if request.title.startswith("Check") else STEPS
        for done, step in enumerate(steps):
            update(session, task, done / len(steps), step)
            say(step)
            time.sleep(pace)
        # An update is a safe point: what was steered until then has been heard after it.
        update(session, task, 0.95, "writing the report")
        time.sleep(min(pace, 0.5))
        heard = "".join(f" ({steer})" for steer in steers[session_id])
        session.complete_task(task, output=f"sales are up 12 %{heard}".encode())
        say(f"reported: up 12 %{heard}")
    except MacpAckError as refused:
        say(f"gave up {request.title!r}: {refused}")


threading.Thread(target=hear_orders, daemon=True).start()
say("is waiting for tasks")
for response in client.watch_sessions():
    event = response.event
    if event.event_type == core_pb2.SessionLifecycleEvent.EVENT_TYPE_CREATED and event.session.initiator != name:
        threading.Thread(target=work, args=[event.session.session_id], daemon=True).start()
