"""A PostgreSQL that `scripts/postgres` started, and a synchronous standby of it: to be killed, started again and promoted."""

import os
import pathlib
import signal
import subprocess
import time
import urllib.parse

from node import PATIENCE, free_port


class Server:
    """One PostgreSQL: its directory and its port."""

    def __init__(self, place, port):
        self.place, self.port = pathlib.Path(place), port

    @property
    def address(self):
        return "127.0.0.1", self.port

    def query(self, sql):
        """The rows of an answer, as lists of texts."""
        command = [PROGRAMS / "psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-F", "\x1f", "-c", sql, self.url]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
        return [line.split("\x1f") for line in answer.stdout.splitlines()]

    @property
    def url(self):
        return f"postgres://handover@127.0.0.1:{self.port}/postgres"

    def pid(self):
        return int((self.place / "postmaster.pid").read_text().splitlines()[0])

    def kill(self):
        """As when the machine stops: the postmaster and all that it started end at once."""
        pid = self.pid()
        os.kill(pid, signal.SIGQUIT)
        until(lambda: not pathlib.Path(f"/proc/{pid}").exists(), "the database has ended")

    def start(self):
        options = f"-c listen_addresses=127.0.0.1 -c port={self.port} -c unix_socket_directories={self.place.parent}"
        options += " -c max_connections=300"
        with (self.place.parent / "server.log").open("a") as log:
            command = [*AS, PROGRAMS / "pg_ctl", "start", "-s", "-w", "-D", self.place, "-o", options]
            subprocess.run(command, check=True, timeout=PATIENCE, stdout=log, stderr=log)
        return self

    def pause(self):
        """Stop it in the middle, and all that it started: whoever asks it waits."""
        self._signal_all(signal.SIGSTOP)

    def go_on(self):
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, how):
        pid = self.pid()
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for one in [pid, *map(int, children)]:
            try:
                os.kill(one, how)
            except ProcessLookupError:
                pass

    def standby(self):
        """A copy of it that follows it, and that each commit waits for from now on."""
        place = self.place.parent / f"standby-{free_port()}"
        copy = [*AS, PROGRAMS / "pg_basebackup", "-D", place, "-R", "-c", "fast", "-d", self.url]
        subprocess.run(copy, check=True, timeout=PATIENCE, capture_output=True)
        standby = Server(place, free_port()).start()
        self.query("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.query("SELECT pg_reload_conf()")
        is_sync = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
        until(lambda: self.query(is_sync), "the standby is synchronous")
        return standby

    def promote(self):
        subprocess.run([*AS, PROGRAMS / "pg_ctl", "promote", "-s", "-w", "-D", self.place], check=True, timeout=PATIENCE)


def started():
    """The one that `scripts/postgres` started for this run."""
    url = urllib.parse.urlsplit(os.environ["HANDOVER_TEST_POSTGRES"])
    return Server(pathlib.Path(os.environ["HANDOVER_TEST_POSTGRES_PLACE"]) / "data", url.port)


def until(is_so, what):
    """Wait for a condition, and say what it was if it does not come."""
    deadline = time.monotonic() + PATIENCE
    while not (found := is_so()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited in vain until {what}")
        time.sleep(0.05)
    return found


PROGRAMS = pathlib.Path(os.environ.get("HANDOVER_TEST_POSTGRES_PROGRAMS", ""))
# PostgreSQL refuses root.
AS = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.getuid() == 0 else []
