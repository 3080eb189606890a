"""Three agents, one for each protocol, and a task for them. They go on until Ctrl-C. Argument: seconds for each step (2)."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).parent
SERVER = os.environ.get("HANDOVER_SERVER", "http://127.0.0.1:8420")
pace = sys.argv[1] if len(sys.argv) > 1 else "2"
# The analyst is slower: while it works there is time to read, to type a steer and to pause.
analysts_pace = str(3 * float(pace))


def grid(name, path, body):
    """Grid is plain JSON over HTTP, and in development the token is the agent's id."""
    headers = {"authorization": f"Bearer {name}", "content-type": "application/json"}
    request = urllib.request.Request(f"{SERVER}/grid{path}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


try:
    # The directory is for everybody: the analyst, which speaks MACP, is entered here.
    grid("analyst", "/nodes", {"name": "Analyst", "description": "finds trends"})
except urllib.error.URLError as error:
    sys.exit(f"there is no server in development mode at {SERVER} ({error}): start one with make run")

signal.signal(signal.SIGTERM, lambda *_: sys.exit())
# The analyst and the writer are the agents of the other examples.
agents = [["macp/analyst.py", analysts_pace], ["grid/writer.py", pace, "analyst"], ["demo/lead.py", pace]]
# In sessions of their own: Ctrl-C is for this program, which then ends them.
running = [
    subprocess.Popen([sys.executable, HERE.parent / agent, *arguments], start_new_session=True) for agent, *arguments in agents
]
try:
    task = {"to": "lead", "title": "Sales report", "message": "Please have a report made about the sales of Q4.", "queue": True}
    sent = grid("you", "/a2a/you", {"jsonrpc": "2.0", "id": 1, "method": "task/send", "params": task})
    print(f"you            gave 'Sales report' to lead: sign in as you at {SERVER}/tasks/{sent['result']['task']['taskId']}", flush=True)
    pid, _ = os.wait()
    sys.exit(next(f"{process.args[1].name} has ended" for process in running if process.pid == pid))
except KeyboardInterrupt:
    pass
finally:
    for process in running:
        process.terminate()
