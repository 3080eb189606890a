"""Nodes of the release binary on one database, each a process on addresses of its own that it keeps when it starts again."""

import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess

BINARY = pathlib.Path(os.environ["HANDOVER_BINARY"]).resolve()

# How long anything may take before it counts as never: long, because the machine may be busy.
PATIENCE = 60.0

# Limits that the plays would reach, and what makes what happens to a lost node happen soon.
SETTINGS = {
    "LIMITS_SESSIONS_OPEN_PER_AGENT_MAX": 1_000_000,
    "LIMITS_STREAMS_PER_AGENT_MAX": 10_000,
    "LOG_LEVEL": "warn",
}


class Node:
    """One process. It may be killed, paused, told to stop, and started again where it was."""

    def __init__(self, name, store, place, **settings):
        self.name, self.place = name, pathlib.Path(place) / name
        self.place.mkdir(parents=True)
        free = [free_port() for _ in range(3)]
        self.http, self.macp, self.admin = (("127.0.0.1", port) for port in free)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HANDOVER_")}
        given = {**SETTINGS, "STORE": store, "STORE_NODE": name, **settings}
        self.environment = clean | {f"HANDOVER_{name}": str(value) for name, value in given.items()}
        self.process, self.ready = None, None

    def start(self):
        """Start it, and wait until it says that it is ready."""
        self.begin()
        return self.wait()

    def begin(self, *more, preexec_fn=None):
        flags = {"--data": self.place, "--http": self.http, "--macp": self.macp, "--admin": self.admin}
        texts = (text if name == "--data" else "{}:{}".format(*text) for name, text in flags.items())
        command = [BINARY, "serve", "--json", *(word for pair in zip(flags, texts, strict=True) for word in pair), *more]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=(self.place / "log").open("a"),
            env=self.environment,
            preexec_fn=preexec_fn,
        )

    def wait(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} did not start: {self.log()[-2000:]}")
        self.ready = json.loads(line)
        return self

    def is_ready(self):
        """Whether it says so itself."""
        connection = http.client.HTTPConnection(*self.http, timeout=PATIENCE)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        finally:
            connection.close()

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        self._end(signal.SIGKILL)

    def stop(self):
        """Tell it to stop, wait for that, and say how it ended."""
        return self._end(signal.SIGTERM)

    def _end(self, how):
        if self.process is None:
            return None
        # One that is paused would not hear it.
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(how)
        status = self.process.wait(timeout=PATIENCE)
        self.process.stdout.close()
        return status

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def log(self):
        return (self.place / "log").read_text(errors="replace")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
