"""A MACP agent that hands a task to another one, watches it, and settles it. Arguments: who shall do it (analyst), the title."""

import os
import sys

from macp.modes.task.v1 import task_pb2
from macp_sdk import AuthConfig, MacpClient
from macp_sdk.task import TaskSession

worker = sys.argv[1] if len(sys.argv) > 1 else "analyst"
title = sys.argv[2] if len(sys.argv) > 2 else "Q4 sales"
target = os.environ.get("HANDOVER_MACP", "127.0.0.1:50051")
client = MacpClient(target=target, allow_insecure=True, auth=AuthConfig.for_dev_agent("planner"))

session = TaskSession(client)
session.start(intent="analyse sales", participants=["planner", worker], ttl_ms=300_000)
stream = client.open_stream()
stream.send_subscribe(session.session_id)
session.request_task("t1", title, instructions="Find the trend.", requested_assignee=worker)
print(f"planner  MACP  asked {worker} for {title!r}: task {session.session_id}", flush=True)

while envelope := stream.read(timeout=120):
    if envelope.message_type == "TaskUpdate":
        update = task_pb2.TaskUpdatePayload.FromString(envelope.payload)
        print(f"planner  MACP  heard: {update.progress:.0%} {update.message}", flush=True)
    elif envelope.message_type == "TaskComplete":
        output = task_pb2.TaskCompletePayload.FromString(envelope.payload).output.decode()
        session.commit(action="task.completed", authority_scope="analysis", reason="delivered")
        print(f"planner  MACP  settled it: {output}", flush=True)
        break
    elif envelope.message_type in ("TaskReject", "TaskFail"):
        session.commit(action="task.failed", authority_scope="analysis", reason="not done", outcome_positive=False)
        sys.exit(f"planner  MACP  settled it as failed: {envelope.message_type}")
stream.close()
