"""Somebody who types what a page says into terminals: a directory of their own, and `handover` and `python` on the PATH."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

from pages import ROOT

BINARY = pathlib.Path(os.environ.get("HANDOVER_BINARY", ROOT / "target/docs/bin/handover")).resolve()
PATIENCE = 30.0

# A cargo that compiles nothing, and takes no other command.
CARGO_RUN = """#!/bin/sh
[ "$1 $2 $3 $4 $5" = "run --release --package handover --" ] || { echo "unexpected: cargo $*" >&2; exit 1; }
shift 5
exec handover "$@"
"""


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Terminal:
    """A shell that runs one block after the other. What it shows is in a file."""

    def __init__(self, name, place, environment):
        self.place, self.name, self.blocks, self.seen = place, name, 0, 0
        self.log = place / f".{name}.log"
        with self.log.open("w") as log:
            self.shell = subprocess.Popen(
                ["bash", "-e"], stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=place, env=environment,
                text=True, start_new_session=True,
            )  # fmt: skip

    def shown(self):
        return self.log.read_text(errors="replace")[self.seen :]

    def run(self, text, until=None):
        """Run a block to its end, or until it has said something and goes on by itself."""
        self.blocks += 1
        script = self.place / f".{self.name}-{self.blocks}.sh"
        done = script.with_suffix(".done")
        script.write_text(text)
        self.seen = len(self.log.read_text(errors="replace"))
        self.shell.stdin.write(f". {script} </dev/null; : >{done}\n")
        self.shell.stdin.flush()
        deadline = time.monotonic() + PATIENCE
        while not (done.exists() or (until and until in self.shown())):
            assert self.shell.poll() is None, f"the block failed ({self.shell.returncode}):\n{text}\n{self.shown()}"
            assert time.monotonic() < deadline, f"the block did not end in {PATIENCE} s:\n{text}\n{self.shown()}"
            time.sleep(0.02)
        assert not until or until in self.shown(), f"expected {until!r}:\n{self.shown()}"

    def close(self):
        """End the shell and everything that it has started: in order, or after five seconds not."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.shell.pid, signal.SIGTERM)
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline:
                self.shell.poll()
                os.killpg(self.shell.pid, 0)
                time.sleep(0.02)
            os.killpg(self.shell.pid, signal.SIGKILL)
        self.shell.wait()


class Reader:
    """The default ports become free ones, in what is typed, in what is saved and for the programs."""

    def __init__(self, place):
        self.place = place
        http, macp, admin = free_ports(3)
        self.ports = {"8420": str(http), "50051": str(macp), "8421": str(admin)}
        programs = place / ".bin"
        programs.mkdir()
        (programs / "handover").symlink_to(BINARY)
        # Examples may leave things behind, so they are a copy; the rest is only read.
        shutil.copytree(ROOT / "examples", place / "examples", ignore=shutil.ignore_patterns("__pycache__"))
        for settings in (place / "examples").rglob("*.toml"):
            settings.write_text(self.local(settings.read_text()))
        for name in ("crates", "docs"):
            (place / name).symlink_to(ROOT / name)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HANDOVER_")}
        self.environment = kept | {
            "PATH": os.pathsep.join([str(programs), str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]),
            "HOME": str(place),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "HANDOVER_HTTP": f"127.0.0.1:{http}",
            "HANDOVER_MACP": f"127.0.0.1:{macp}",
            "HANDOVER_ADMIN": f"127.0.0.1:{admin}",
            "HANDOVER_SERVER": f"http://127.0.0.1:{http}",
        }
        self.terminals = {}

    def local(self, text):
        for host in ("127.0.0.1", "localhost", "0.0.0.0"):
            for port, mine in self.ports.items():
                text = text.replace(f"{host}:{port}", f"{host}:{mine}")
        return text

    def typed(self, text):
        """What is typed. Where a configuration file says the addresses, they are not said by the environment as well."""
        names = tuple(re.findall(r"--config (\S+\.toml)", text))
        if any("\nhttp =" in file.read_text() for file in self.place.rglob("*.toml") if str(file).endswith(names)):
            return "unset HANDOVER_HTTP HANDOVER_MACP HANDOVER_ADMIN\n" + text
        return text

    def terminal(self, name):
        if name not in self.terminals:
            self.terminals[name] = Terminal(name, self.place, self.environment)
        return self.terminals[name]

    def has_built(self):
        """From now on `cargo run --release` of the program starts the one that there is."""
        cargo = self.place / ".bin" / "cargo"
        cargo.write_text(CARGO_RUN)
        cargo.chmod(0o755)

    def serve(self):
        self.terminal("server").run("handover serve", until="handover is ready")

    def ended(self):
        for terminal in self.terminals.values():
            terminal.close()
