"""Has a Prometheus scrape a server that works, and asks it everything that the dashboard and the alerts ask: no query may be wrong, and
none may find nothing. No alert may fire at a server that is well."""

import http.client
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

ROOT = pathlib.Path(__file__).parents[2]
BINARY = pathlib.Path(os.environ["HANDOVER_BINARY"])
DASHBOARD = ROOT / "deploy/grafana/handover.json"
ALERTS = ROOT / "deploy/prometheus/alerts.yml"

# How long anything may take before the run has failed: long, because the machine may be busy.
PATIENCE = 120.0

# The end of an alert's expression, where it is compared with a threshold.
THRESHOLD = re.compile(r"\s[<>]=?\s*[0-9.]+$")


def until(is_so, what):
    deadline = time.monotonic() + PATIENCE
    while not (found := is_so()):
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.1)
    return found


def ask(address, path, method="GET", body=None, headers={}):
    connection = http.client.HTTPConnection(address, timeout=PATIENCE)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


class Prometheus:
    """One that looks at a server every second, under the alerts as they are."""

    def __init__(self, place, target):
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(ALERTS)],
            "scrape_configs": [{"job_name": "handover", "static_configs": [{"targets": [target]}]}],
        }
        # JSON is YAML.
        (place / "prometheus.yml").write_text(json.dumps(config))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = "127.0.0.1:%d" % free.getsockname()[1]
        command = [
            "prometheus", f"--config.file={place / 'prometheus.yml'}", f"--storage.tsdb.path={place / 'tsdb'}",
            f"--web.listen-address={self.address}", "--log.level=warn",
        ]
        self.process = subprocess.Popen(command)
        until(self.is_ready, "Prometheus was ready")

    def is_ready(self):
        assert self.process.poll() is None, "Prometheus ended"
        try:
            return ask(self.address, "/-/ready")[0] == 200
        except OSError:
            return False

    def get(self, path):
        status, text = ask(self.address, path)
        said = json.loads(text)
        assert (status, said["status"]) == (200, "success"), text
        return said["data"]

    def query(self, expression):
        # What is still a question of nothing by nothing is found only later.
        found = self.get("/api/v1/query?" + urllib.parse.urlencode({"query": expression}))["result"]
        return [one for one in found if one["value"][1] != "NaN"]


def grid(server, method, params):
    """A call of alice's over Grid."""
    said = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    status, text = ask(server["http"], "/grid/a2a/alice", "POST", json.dumps(said), {"authorization": "Bearer alice", "content-type": "application/json"})
    assert status == 200 and "error" not in json.loads(text), text


def work(server):
    """One task over Grid, one call there that waits on purpose, one look at the console, one call of MACP, which is refused, and one of MCP."""
    grid(server, "task/send", {"to": "bob", "message": "count"})
    # Nobody answers: it waits for as long as it may, which is longer than an answer should take.
    grid(server, "task/list", {"unread": True, "waitMs": 2500})
    ask(server["http"], "/sign-in")
    ask(server["http"], "/healthz")
    ask(server["http"], "/mcp", "POST", "{}", {"authorization": "Bearer alice", "content-type": "application/json"})
    called = subprocess.run([BINARY, "bench", "macp", "--toy", "--target", server["macp"]], capture_output=True, timeout=PATIENCE)
    assert called.returncode == 0, called


def expressions():
    """What the dashboard and the alerts ask, with the dashboard's variables filled in."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    asked = [one.replace("$job", "handover").replace("$__rate_interval", "5m") for one in asked]
    assert not any("$" in one for one in asked), asked
    return asked


def main():
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        command = [BINARY, "serve", "--json", "--data", place / "data", "--http", "127.0.0.1:0", "--macp", "127.0.0.1:0"]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HANDOVER_")}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=open(place / "log", "w"), env=kept)
        prometheus = None
        try:
            server = json.loads(process.stdout.readline())
            prometheus = Prometheus(place, server["admin"])
            until(lambda: prometheus.query('up{job="handover"} == 1'), "the server was scraped")
            # What is counted only when it happens has a rate only if it happens more than once after the first look.
            asked = expressions()
            rules = prometheus.get("/api/v1/rules")["groups"][0]["rules"]
            assert len(rules) == ALERTS.read_text().count("- alert:") and len(asked) > 20
            bare = [THRESHOLD.sub("", rule["query"]) for rule in rules]
            assert all(one != rule["query"] for one, rule in zip(bare, rules)), "an alert has no threshold"
            wanted = set(asked + bare)

            def answered():
                work(server)
                wanted.difference_update([one for one in wanted if prometheus.query(one)])
                return not wanted

            try:
                until(answered, "every query found something")
            except AssertionError:
                sys.exit("found nothing:\n" + "\n".join(sorted(wanted)))
            firing = [rule["name"] for rule in prometheus.get("/api/v1/rules")["groups"][0]["rules"] if rule["state"] == "firing"]
            unwell = [rule["name"] for rule in prometheus.get("/api/v1/rules")["groups"][0]["rules"] if rule["health"] != "ok"]
            assert not firing and not unwell, (firing, unwell)
            # Alerts fire only when they have been so for minutes: here each is asked whether it is so. How fast the disk is, is not the
            # server's to say.
            so = [rule["name"] for rule in rules if rule["name"] != "HandoverCommitsSlow" and prometheus.query(rule["query"])]
            assert not so, f"would fire at a server that is well: {so}"
            # Whom tasks wait for is looked at every so often.
            until(lambda: prometheus.query('handover_sessions_open{mode="task",waits_for="worker"} > 0'), "the task was counted")
            for metric in ("handover_longest_idle_seconds", "handover_longest_wait_seconds"):
                until(lambda: prometheus.query(metric + '{mode="task",waits_for="worker"} > 0'), f"{metric} was counted")
            print(f"asked {len(asked)} queries of the dashboard, {len(rules)} of alerts")
        finally:
            for one in (process, prometheus and prometheus.process):
                if one:
                    one.terminate()
                    one.wait(PATIENCE)


main()
