"""A server of the release binary that knows a few agents by their tokens, and what its process uses meanwhile."""

import hashlib
import json
import os
import pathlib
import resource
import signal
import socket
import subprocess
import time

BINARY = pathlib.Path(os.environ["HANDOVER_BINARY"])

# How long anything may take before a test has failed: long, because the machine may be busy.
PATIENCE = 60.0

# The largest numbers that the settings take.
MANY = 1_000_000
BYTES_MOST = 1_000_000_000_000
SECONDS_MOST = 3600

MB = 1 << 20

NO_BUDGETS = {
    "LIMITS_MEMORY_PER_AGENT_BYTES": BYTES_MOST,
    "LIMITS_MEMORY_PER_TENANT_BYTES": BYTES_MOST,
    "LIMITS_MEMORY_BYTES": BYTES_MOST,
}


def until(is_so, what):
    """Wait for a condition, and say what it was if it does not come."""
    deadline = time.monotonic() + PATIENCE
    while not (found := is_so()):
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.02)
    return found


def run(*arguments):
    """Run a command of the binary to its end."""
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=PATIENCE, env=clean())


def clean(settings=()):
    """The environment without settings of anybody else's, and with these."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HANDOVER_")}
    return environment | {f"HANDOVER_{name}": str(value) for name, value in dict(settings).items()}


class Server:
    """One process on a directory of its own. Unless the settings say otherwise, everything has its default."""

    # Whom it knows. Everybody else of the tenant is a name.
    AGENTS = [("planner", "acme"), ("worker", "acme"), ("helper", "acme"), ("mallory", "acme"), ("honest", "other")]

    def __init__(self, place, files=None, http="127.0.0.1:0", agents=AGENTS, **settings):
        self.place = place
        place.mkdir(parents=True, exist_ok=True)
        self.data, self.tokens, self.log = place / "data", place / "tokens.toml", place / "log"
        self.know(agents)
        command = [BINARY, "serve", "--json", "--data", self.data, "--http", http, "--macp", "127.0.0.1:0"]
        limit = None if files is None else lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.log.open("w"),
            env=clean({"IDENTITY_TOKENS": self.tokens, **settings}),
            preexec_fn=limit,
            # What is kept from others is the server's doing.
            umask=0,
        )
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        ready = json.loads(line)
        self.http, self.macp, self.admin = (address_of(ready[key]) for key in ("http", "macp", "admin"))

    def know(self, agents):
        """Write the file of tokens: these agents, as everybody's token is its name and its tenant."""
        entry = '[[token]]\nsha256 = "{}"\nagent = "{}"\ntenant = "{}"\n'
        hashed = [(hashlib.sha256(token_of(*one).encode()).hexdigest(), *one) for one in agents]
        self.tokens.touch(mode=0o600)
        self.tokens.write_text("\n".join(entry.format(*one) for one in hashed))

    def stop(self):
        """Kill it: what it was asked need not be finished."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def signal(self, name):
        self.process.send_signal(getattr(signal, name))

    def metric(self, name):
        """A number that its operator sees; 0 if it is not there yet."""
        for line in get(self.admin, "/metrics").splitlines():
            if line.startswith(name + " "):
                return int(float(line.rsplit(" ", 1)[1]))
        return 0

    def limited(self, limit):
        return self.metric(f'handover_limited_total{{limit="{limit}"}}')

    def open_connections(self, listener):
        return self.metric(f'handover_connections_open{{listener="{listener}"}}')

    def dropped(self, listener, why):
        return self.metric(f'handover_connections_dropped_total{{listener="{listener}",why="{why}"}}')

    def memory(self):
        """The bytes of memory that the process has."""
        return self._status("VmRSS")

    def peak(self):
        """The most memory that it had since `forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self):
        pathlib.Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def _status(self, name):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(name + ":")) * 1024

    def processor_seconds(self):
        """The processor time that it has used, which does not depend on what else runs here."""
        after_name = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")

    def audit(self):
        """The lines of the audit log."""
        path = self.data / "audit.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def token_of(agent, tenant="acme"):
    return f"{agent}-of-{tenant}-0123456789abcdef"


def address_of(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def connect(address):
    connected = socket.create_connection(address, timeout=PATIENCE)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def get(address, path):
    """What is at a path: head and body."""
    with connect(address) as asking:
        asking.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
        return read_to_end(asking).decode()


def read_to_end(stream):
    """Everything until the server ends it, also if it resets what it has answered already."""
    parts = []
    try:
        while part := stream.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def is_closed(stream):
    """Whether the server has ended a connection, without waiting."""
    stream.settimeout(0)
    try:
        while stream.recv(65536):
            pass
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True
