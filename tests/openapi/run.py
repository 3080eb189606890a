"""Tries what docs/openapi.json describes, at a server with tasks in every state that a form is for: the HTTP listener as an agent that
is signed in, Grid's directory as one with a token, and the admin listener. Ends with a status other than 0 if an answer was not as described, or if an operation was left out
or only ever refused."""

import hashlib
import http.client
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.parse

from seed import Agent, seeded

HERE = pathlib.Path(__file__).parent
BINARY = pathlib.Path(os.environ["HANDOVER_BINARY"])
DESCRIPTION = HERE.parents[1] / "docs" / "openapi.json"

# How long anything may take before the run has failed: long, because the machine may be busy.
PATIENCE = 60

# How many requests are made up for each operation, beside those that are worked out from its description.
EXAMPLES = 50

# What is tried is the same in every run, unless another seed is given.
SEED = os.environ.get("SEED", "1")


# Who there is, with which roles.
AGENTS = {"ops": ["admin", "observer"], "other": ["admin", "observer"], "planner": [], "worker": []}
TOKENS = {agent: f"the-token-of-{agent}" for agent in AGENTS}

# What is given to this agent needs an approval.
RULES = '[{ delegate = ["guarded"], by = ["ops"] }]'


class Server:
    """A server of its own that knows two administrators and two agents by their tokens."""

    def __init__(self, place):
        tokens = place / "tokens.toml"
        entry = '[[token]]\nsha256 = "{}"\nagent = "{}"\nroles = {}\n'
        tokens.touch(mode=0o600)
        hashed = [(hashlib.sha256(TOKENS[agent].encode()).hexdigest(), agent, json.dumps(roles)) for agent, roles in AGENTS.items()]
        tokens.write_text("\n".join(entry.format(*one) for one in hashed))
        command = [BINARY, "serve", "--json", "--data", place / "data", "--http", "127.0.0.1:0", "--macp", "127.0.0.1:0"]
        # Every request counts as one of the same agent.
        more = {"IDENTITY_TOKENS": tokens, "APPROVALS_RULES": RULES, "LIMITS_REQUESTS_PER_MINUTE": 0, "LIMITS_STARTS_PER_MINUTE": 0, "LIMITS_MESSAGES_PER_MINUTE": 0}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=open(place / "log", "w"), env=environment(more))
        ready = json.loads(self.process.stdout.readline())
        self.http, self.admin = ready["http"], ready["admin"]

    def post(self, path, form, cookie=None):
        """Sends a form; its answer must lead somewhere."""
        connection = http.client.HTTPConnection(self.http, timeout=PATIENCE)
        headers = {"content-type": "application/x-www-form-urlencoded"} | ({"cookie": cookie} if cookie else {})
        connection.request("POST", path, urllib.parse.urlencode(form), headers)
        answer = connection.getresponse()
        assert answer.status == 303, (answer.status, answer.read())
        return answer

    def page(self, path, cookie):
        """A page, for whoever is signed in."""
        connection = http.client.HTTPConnection(self.http, timeout=PATIENCE)
        connection.request("GET", path, headers={"cookie": cookie})
        answer = connection.getresponse()
        assert answer.status == 200, f"{path}: {answer.status}"
        return answer.read().decode()

    def sign_in(self):
        return self.post("/sign-in", {"token": TOKENS["ops"]}).headers["set-cookie"].split(";")[0]

    def task(self, cookie, title):
        """A task that waits for its agent."""
        said = {"agent": "worker", "queue": "true", "title": title, "instructions": "count the words"}
        to = self.post("/delegate", said, cookie).headers["location"]
        return urllib.parse.urlsplit(to).path.removeprefix("/tasks/")

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE)


def environment(settings):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HANDOVER_")}
    return kept | {f"HANDOVER_{name}": str(value) for name, value in settings.items()}


def schemathesis(place, name, url, arguments, **more):
    """Runs it, shows what it says, and says which operations it tried, and which of them did what they were asked to."""
    events = place / f"{name}.ndjson"
    command = [
        pathlib.Path(sys.executable).parent / "st", f"--config-file={HERE / 'schemathesis.toml'}", "run", place / "openapi.json",
        f"--url={url}", "--checks=all", "--exclude-checks=negative_data_rejection", f"--max-examples={EXAMPLES}", f"--seed={SEED}", "--generation-database=none", "--phases=examples,coverage,fuzzing",
        f"--report-ndjson-path={events}", "--no-color", *arguments, *sys.argv[1:],
    ]
    done = subprocess.run(command, cwd=place, env=os.environ | {"SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(HERE)} | more)
    tried, did = set(), set()
    for line in events.read_text().splitlines():
        recorded = json.loads(line).get("ScenarioFinished", {}).get("recorder", {})
        tried.add(label := recorded.get("label"))
        for exchange in recorded.get("interactions", {}).values():
            answer = exchange["response"] or {"status_code": None}
            well = answer["status_code"] in (200, 202) or answer["status_code"] == 303 and not asks_to_sign_in(answer)
            # Other methods are tried as well.
            if well and label.startswith(exchange["request"]["method"] + " "):
                did.add(label)
    return done.returncode, tried - {None}, did


def asks_to_sign_in(answer):
    return any(to.startswith("/sign-in?next=") for to in answer["headers"].get("location", []))


def main():
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        server = Server(place)
        try:
            served = http.client.HTTPConnection(server.http, timeout=PATIENCE)
            served.request("GET", "/openapi.json")
            described = json.loads(served.getresponse().read())
            (place / "openapi.json").write_text(json.dumps(described))
            cookie = server.sign_in()
            name = cookie.split("=", 1)[0]
            assert described["components"]["securitySchemes"]["signIn"]["name"] == name
            worker, planner, ops = (Agent(server.http, TOKENS[name]) for name in ("worker", "planner", "ops"))
            there = json.dumps(seeded(server, cookie, worker, planner, ops))
            failed = []
            tried, did = set(), set()
            for part, url, arguments in (
                ("http", server.http, ["--include-tag=http", "--include-tag=console"]),
                ("grid", server.http, ["--include-tag=grid"]),
                ("admin", server.admin, ["--include-tag=admin"]),
            ):
                known = {"SERVER": server.http, "TOKEN": TOKENS["other"], "COOKIE": cookie, "SEEDED": there}
                status, found, well = schemathesis(place, part, f"http://{url}", arguments, **known)
                failed += [part] if status else []
                tried |= found
                did |= well
            methods = ("get", "post", "put", "delete", "patch")
            wanted = {
                f"{method.upper()} {path}"
                for path, operations in described["paths"].items()
                for method, operation in operations.items()
                if method in methods and "stream" not in operation["tags"]
            }
            left_out = wanted - tried
            # Each was done at least once: not only refused, and not only led to the page to sign in at.
            undone = wanted - did
            print(f"tried {len(tried & wanted)} of {len(wanted)} operations, of which {len(did & wanted)} were done")
            # Most of what was tried was tried by somebody who is signed in.
            server.page("/", cookie)
            # The server has lived through it, and a panic is in its log.
            alive = server.process.poll() is None
            log = (place / "log").read_text()
            broken = [line for line in log.splitlines() if " ERROR " in line or "panicked" in line]
            print("\n".join(broken))
            if failed or left_out or undone or broken or not alive:
                sys.exit(f"failed: {failed}, left out: {sorted(left_out)}, never done: {sorted(undone)}, alive: {alive}")
        finally:
            server.stop()


main()
