"""`handover`, but `handover serve` is three nodes on one database behind a load balancer: so that the suites of one server try several.

MANY_BINARY is the binary, and MANY_POSTGRES the database. A data directory is a schema in it. Everything else is passed on.
"""

import argparse
import asyncio
import ctypes
import hashlib
import json
import os
import signal
import sys
import tempfile

BINARY = os.environ["MANY_BINARY"]


def address(text):
    host, _, port = text.rpartition(":")
    return host.strip("[]").replace("localhost", "127.0.0.1"), int(port)


def end_with_parent():
    """Whoever kills us kills the nodes."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def serve(given, rest):
    os.environ["HANDOVER_BINARY"] = BINARY
    from node import Node

    schema = "s" + hashlib.sha256(os.path.abspath(given.data).encode()).hexdigest()[:20]
    # What was set for the server is set for each node.
    settings = {
        name.removeprefix("HANDOVER_"): value
        for name, value in os.environ.items()
        if name.startswith("HANDOVER_") and name != "HANDOVER_BINARY"
    }
    settings |= {"STORE_SCHEMA": schema, "DRAIN_SECONDS": 0}
    os.makedirs(given.data, mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="many-", dir=given.data) as place:
        nodes = [Node(f"node-{number}", os.environ["MANY_POSTGRES"], place, **settings) for number in (1, 2, 3)]
        try:
            for node in nodes:
                node.begin(*rest, preexec_fn=end_with_parent)
                node.wait()
            return asyncio.run(balance(given, nodes))
        finally:
            for node in nodes:
                if node.is_running():
                    node.stop()


async def balance(given, nodes):
    from front import Front

    ended = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, ended.set)
    front = Front([(node.http, node.macp) for node in nodes])
    http, macp = ("{}:{}".format(*at) for at in await front.start(given.http, given.macp))
    print(json.dumps({**nodes[0].ready, "http": http, "macp": macp}), flush=True)
    await ended.wait()
    # Streams are told why they end.
    await asyncio.gather(*(asyncio.to_thread(node.stop) for node in nodes))
    front.stop()
    return 0


def main():
    if sys.argv[1:2] != ["serve"] or "--print-config" in sys.argv:
        os.execv(BINARY, [BINARY, *sys.argv[1:]])
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default=os.environ.get("HANDOVER_DATA", "./handover-data"))
    for name, default in (("http", "127.0.0.1:8420"), ("macp", "127.0.0.1:50051"), ("admin", "auto")):
        kind = str if name == "admin" else address
        parser.add_argument(f"--{name}", type=kind, default=kind(os.environ.get(f"HANDOVER_{name.upper()}", default)))
    parser.add_argument("--json", action="store_true")
    sys.exit(serve(*parser.parse_known_args(sys.argv[2:])))


main()
