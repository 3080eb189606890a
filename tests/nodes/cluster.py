"""Three nodes on the PostgreSQL that `scripts/postgres` started, and a load balancer in front of them, until Ctrl-C; or for as long as a
command runs, which is told where they are.

    scripts/cluster [--nodes N] [--http ADDRESS] [--macp ADDRESS] [COMMAND …]
"""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import tempfile

from front import Front
from node import Node


def address(text):
    host, _, port = text.rpartition(":")
    return host, int(port)


async def serve(given, nodes):
    front = Front([(node.http, node.macp) for node in nodes])
    http, macp = ("{}:{}".format(*at) for at in await front.start(given.http, given.macp))
    each = ", ".join("{} at {}:{}".format(node.name, *node.http) for node in nodes)
    print(f"ready: http://{http} and macp://{macp} in front of {each}, on {os.environ['HANDOVER_TEST_POSTGRES']}", flush=True)
    ended = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, ended.set)
    try:
        if not given.command:
            await ended.wait()
            return 0
        environment = os.environ | {"HANDOVER_HTTP": http, "HANDOVER_MACP": macp}
        command = await asyncio.create_subprocess_exec(*given.command, env=environment)
        with contextlib.suppress(ProcessLookupError):
            stopping = asyncio.create_task(ended.wait())
            running = asyncio.create_task(command.wait())
            await asyncio.wait([stopping, running], return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not running.done():
                command.terminate()
        return await command.wait()
    finally:
        front.stop()


def main():
    parser = argparse.ArgumentParser(prog="scripts/cluster", description=__doc__.split("\n\n")[0])
    parser.add_argument("--nodes", type=int, default=3, help="how many nodes [default: 3]")
    parser.add_argument("--http", type=address, default=("127.0.0.1", 8420), help="where HTTP is balanced [default: 127.0.0.1:8420]")
    parser.add_argument("--macp", type=address, default=("127.0.0.1", 50051), help="where MACP is balanced [default: 127.0.0.1:50051]")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="run this with HANDOVER_HTTP and HANDOVER_MACP, and then end")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="handover-cluster-") as place:
        store = os.environ["HANDOVER_TEST_POSTGRES"]
        nodes = [Node(f"node-{number}", store, place, DRAIN_SECONDS=0) for number in range(1, given.nodes + 1)]
        try:
            for node in nodes:
                node.start()
            status = asyncio.run(serve(given, nodes))
        finally:
            for node in nodes:
                if node.is_running():
                    node.stop()
    sys.exit(status)


main()
