"""An agent on the published MACP SDK for Python: it takes each task that it is asked to do, asks where to dig, and reports what it
was told. Its arguments: the server, its name."""

import json
import queue
import sys
import threading

from macp.modes.task.v1 import task_pb2
from macp.v1 import core_pb2
from macp_sdk import AuthConfig, MacpClient
from macp_sdk.task import TaskSession

PATIENCE = 30.0


def main(target, name):
    credential = AuthConfig.for_dev_agent(name)
    client = MacpClient(target=target, allow_insecure=True, auth=credential, default_timeout=PATIENCE)
    told = queue.Queue()

    def listen():
        for response in client.watch_signals():
            signal = core_pb2.SignalPayload.FromString(response.envelope.payload)
            told.put((signal.signal_type, signal.data.decode()))

    threading.Thread(target=listen, daemon=True).start()
    print(json.dumps({"ready": name}), flush=True)
    for response in client.watch_sessions():
        session_id = response.event.session.session_id
        stream = client.open_stream()
        stream.send_subscribe(session_id)
        while (envelope := stream.read(timeout=PATIENCE)).message_type != "TaskRequest":
            pass
        request = task_pb2.TaskRequestPayload.FromString(envelope.payload)
        work(TaskSession(client, session_id=session_id, auth=credential), request, told)
        stream.close()


def work(session, request, told):
    task = request.task_id
    session.accept_task(task)
    session.update_task(task, status="digging", progress=0.5, message="half way")
    session.update_task(task, status="input_required", message="Which side?")
    kind, data = told.get(timeout=PATIENCE)
    assert kind == "task.answer", f"expected the answer, found {kind}"
    side = json.loads(data)[0]["content"]
    output = json.dumps({"asked": json.loads(request.input), "side": side}).encode()
    session.complete_task(task, output=output, summary="dug")


main(*sys.argv[1:])
