"""A Grid agent in Python's standard library. It takes the tasks that it is sent, works on them, and delivers; with a checker it has
another agent look over its text first. Arguments: seconds for each step (1), the checker (nobody)."""

import json
import os
import sys
import time
import urllib.request

NAME = "writer"
SERVER = os.environ.get("HANDOVER_SERVER", "http://127.0.0.1:8420")
HEADERS = {"authorization": f"Bearer {NAME}", "content-type": "application/json"}  # in development the token is the agent's id
pace = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
checker = sys.argv[2] if len(sys.argv) > 2 else None


def post(path, body):
    request = urllib.request.Request(f"{SERVER}/grid{path}", json.dumps(body).encode(), HEADERS)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def call(method, **params):
    answer = post(f"/a2a/{NAME}", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    if "error" in answer:
        raise RuntimeError(f"{method}: {answer['error']['message']}")
    return answer["result"]


def say(text):
    print(f"{NAME:8} Grid  {text}", flush=True)


def text_of(messages):
    return " ".join(part["text"] for message in messages for part in message["parts"] if part["type"] == "text")


def checked(task, text):
    """Have the text checked, as a subtask, and say what came of it. Only the sender completes a task of Grid."""
    sent = call("task/send", to=checker, title="Check the numbers", message=text, parentTaskId=task)
    under = sent["task"]["taskId"]
    say(f"asked {checker} to check the numbers")
    while call("task/get", taskId=under)["task"]["state"] in ("submitted", "working"):
        time.sleep(pace / 2)
    said = text_of(call("task/read", taskId=under)["messages"][-1:])
    if call("task/get", taskId=under)["task"]["state"] == "input_required":
        call("task/complete", taskId=under)
    return said


def work(task, asked):
    """Write, have it checked, deliver. A message without a state delivers."""
    call("message/ack", taskId=task)
    say("took a task")
    for step in ("reading what was found", "writing the first draft", "writing the second draft"):
        call("task/update", taskId=task, state="working", message=step)
        say(step)
        time.sleep(pace)
        # Reading is the moment at which steers and messages of the sender are handed over.
        for message in call("task/read", taskId=task)["messages"]:
            asked += f" ({text_of([message])})"
    text = f"Report. {asked}"
    if checker:
        text += f" Checked by {checker}: {checked(task, text)}"
    call("message/send", taskId=task, message=text)
    say("delivered")


post("/nodes", {"name": "Writer", "description": "writes reports"})
say("is waiting for tasks")
taken = set()
while True:
    # With waitMs the server answers as soon as there is news. A stream of notifications (SSE) tells the same.
    for task in call("task/list", unread=True, waitMs=20_000)["tasks"]:
        messages = call("task/read", taskId=task["taskId"])["messages"]
        if task["state"] == "submitted" and task["taskId"] not in taken:
            taken.add(task["taskId"])
            try:
                work(task["taskId"], text_of(messages))
            except RuntimeError as refused:  # it was cancelled, for example
                say(f"gave up: {refused}")
