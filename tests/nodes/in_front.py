"""What `make nodes` runs in front of the nodes of `scripts/cluster`: a task that is sent at one of them is listed at each."""

import json
import os
import subprocess

NODES = 3


def handover(*words):
    server = {"HANDOVER_SERVER": "http://" + os.environ["HANDOVER_HTTP"], "HANDOVER_TOKEN": "you"}
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HANDOVER_")}
    command = [os.environ["HANDOVER_BINARY"], *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=clean | server).stdout


handover("task", "send", "--to", "worker", "--queue", "Dig", "a hole")
# Each request goes to the next node.
for _ in range(NODES):
    found = [task["title"] for task in json.loads(handover("task", "list", "--json"))["tasks"]]
    if found != ["Dig"]:
        raise SystemExit(f"expected one task at each node, found {found}")
print("a task that was sent at one node of the cluster is listed at each")
