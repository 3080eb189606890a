"""Three nodes on a PostgreSQL with a synchronous standby, and agents on every face that send each request to any node, while nodes are
killed and paused, connections are cut and commits left in doubt, the database is killed and its standby promoted. Then what was asked
and heard is compared with what is stored.

    scripts/nodes [--minutes N] [--seed N] [--rolling]
"""

import argparse
import contextlib
import pathlib
import random
import sys
import tempfile
import threading
import time
import uuid

sys.path[:0] = [str(pathlib.Path(__file__).parent.parent / other) for other in ("grid", "hostile")]

import database  # noqa: E402
import rolling  # noqa: E402
from between import Between  # noqa: E402
from database import until  # noqa: E402
from lives import Caller, Follower, OverGrid, OverMacp, OverMcp, Record, Unanswered  # noqa: E402
from node import PATIENCE, Node  # noqa: E402
from witness import Witness  # noqa: E402

# What a run has at least, however short it is.
LEAST = {
    "kills": 20,
    "pauses": 20,
    "slots lost": 2,
    "commits in doubt": 50,
    "failovers": 1,
    "database kills": 1,
    "long hangs of the standby": 1,
    "reads while it hung": 3,
    "nodes cut off": 2,
    "timers of killed nodes": 2,
}
FACES = (OverMacp, OverMcp, OverGrid)
EACH = 2

# Short, so that what a lost node leaves behind is taken over soon.
LEASE_SECONDS = 2
TIMES = {"STORE_LEASE_SECONDS": LEASE_SECONDS, "STORE_PATIENCE_SECONDS": 3, "DRAIN_SECONDS": 0}


class Trouble:
    """Everything that goes wrong, counted."""

    def __init__(self, nodes, between, primary, place):
        self.nodes, self.between, self.place = nodes, between, place
        self.primary, self.standby = primary, primary.standby()
        self.counts = dict.fromkeys(LEAST, 0) | {"cuts": 0, "stalls": 0, "hangs of the standby": 0}
        self.first_after, self.late, self.wrong = [], [], []

    def enough(self):
        self.counts["commits in doubt"], self.counts["cuts"] = self.between.doubts, self.between.cuts
        return all(self.counts[name] >= least for name, least in LEAST.items())

    def round(self, number, record):
        killed, paused, _ = random.sample(self.nodes, 3)
        paused.pause()
        self.counts["pauses"] += 1
        killed.kill()
        self.counts["kills"] += 1
        self._doubts(2)
        killed.begin()
        # Now and then for so long that another node takes its slot.
        if number % 8 == 3:
            killed.wait()
            self._take_slot_of(paused)
        else:
            time.sleep(random.uniform(0.1, 0.4))
            paused.go_on()
            killed.wait()
        self._doubts(2)
        self.between.delay = random.choice([0, 0, 0.005])
        if number % 3 == 0:
            self.between.cut(random.choice([0.5, 1.0]))
        if number % 5 == 1:
            self.counts["stalls"] += 1
            self.between.stall()
            # Now and then for longer than a command waits.
            time.sleep(3.5 if number % 10 == 6 else 0.5)
            self.between.go_on()
        if number % 7 == 2:
            self.counts["hangs of the standby"] += 1
            self._hang(record, 2 * LEASE_SECONDS if number % 28 == 2 else 0.5)
        if number % 9 == 5:
            self._cut_off(record)
        if number % 9 == 8:
            self._kill_with_a_timer(record)
        if number % 16 == 4:
            self.counts["database kills"] += 1
            self.primary.kill()
            time.sleep(0.3)
            self.primary.start()
        if number % 16 == 10:
            self._fail_over(record)

    def _cut_off(self, record):
        """One node alone does not reach the database: it says so and answers nothing, and the others notice nothing."""
        self.counts["nodes cut off"] += 1
        door = random.randrange(len(self.nodes))
        apart = self.nodes[door]
        session, (requester, _) = list(record.sessions.items())[-1]
        caller = Caller(self.nodes, requester, record)
        self.between.stall(door)
        try:
            until(lambda: not apart.is_ready(), f"{apart.name} says that it is not ready")
            for node in self.nodes:
                try:
                    caller.mcp(node, "task_timeline", task_id=session, max=1)
                    answered = True
                except Unanswered:
                    answered = False
                if answered != (node is not apart):
                    self.wrong.append(f"{node.name} {'answered' if answered else 'did not answer'} while {apart.name} was cut off")
        finally:
            self.between.go_on(door)
        until(apart.is_ready, f"{apart.name} is ready again")

    def _kill_with_a_timer(self, record):
        """A session ends in time although the node is gone that it began at."""
        self.counts["timers of killed nodes"] += 1
        killed, *others = random.sample(self.nodes, len(self.nodes))
        caller = Caller(self.nodes, "hasty", record)
        work = {"agent": "nobody", "title": "hasty", "queue": True, "instructions": "before it is too late", "ttl_ms": 2000}
        begun, *_ = caller.persist(lambda _: caller.mcp(killed, "delegate_task", f"hasty-{uuid.uuid4()}", **work))
        due = time.monotonic() + work["ttl_ms"] / 1000
        killed.kill()
        due = max(due, time.monotonic() + LEASE_SECONDS)

        def is_over():
            found, *_ = caller.persist(lambda _: caller.mcp(random.choice(others), "task_status", task_id=begun["task_id"]))
            return found["state"] == "expired"

        until(is_over, "a task has expired although its node was killed")
        self.late.append(time.monotonic() - due)
        killed.start()

    def _take_slot_of(self, paused):
        """Others take the slot of a node that is paused: it goes on in another."""
        slot, takers = self._slot_of(paused), []
        of = f"FROM handover.slots WHERE slot = {slot}"
        is_over = f"SELECT 1 {of} AND seen_at < clock_timestamp() - interval '{LEASE_SECONDS} s'"
        until(lambda: self.primary.query(is_over), f"the lease of {paused.name} is over")
        try:
            while self.primary.query(f"SELECT node {of}") == [[paused.name]]:
                name = f"taker-{self.counts['slots lost']}-{len(takers)}"
                takers.append(Node(name, self.between.url(), self.place, **TIMES).start())
            paused.go_on()
            until(lambda: self._slot_of(paused) not in (None, slot), f"{paused.name} has another slot")
            self.counts["slots lost"] += 1
        finally:
            for taker in takers:
                taker.stop()

    def _slot_of(self, node):
        of = f"FROM handover.slots WHERE node = '{node.name}' AND seen_at > clock_timestamp() - interval '{LEASE_SECONDS} s'"
        found = self.primary.query(f"SELECT slot {of} ORDER BY seen_at DESC LIMIT 1")
        return found[0][0] if found else None

    def _hang(self, record, seconds):
        """The standby does not answer: nothing is acknowledged, and reads go on for half of a lease."""
        session, (requester, _) = list(record.sessions.items())[-1]
        answered, ending = [], threading.Event()

        def read(node):
            caller = Caller([node], requester, record)
            while not ending.is_set():
                asked = time.monotonic()
                with contextlib.suppress(Unanswered):
                    caller.mcp(node, "task_timeline", task_id=session, max=1)
                    answered.append((asked, time.monotonic()))

        readers = [threading.Thread(target=read, args=[node], daemon=True) for node in self.nodes]
        for reader in readers:
            reader.start()
        self.standby.pause()
        began = time.monotonic()
        time.sleep(seconds)
        ended = time.monotonic()
        self.standby.go_on()
        ending.set()
        for reader in readers:
            reader.join(PATIENCE)
        self.counts["long hangs of the standby"] += seconds > LEASE_SECONDS
        meanwhile = [(asked, heard) for asked, heard in answered if began < asked and heard < ended]
        self.counts["reads while it hung"] += len(meanwhile)
        for asked, _ in meanwhile:
            if asked - began > LEASE_SECONDS / 2:
                self.wrong.append(f"a read was answered that was asked {asked - began:.2f} s after the standby began to hang")
        for write in list(record.writes):
            if began < write.asked and write.heard < ended and not write.refused:
                self.wrong.append(f"{write.mark} was acknowledged while the standby hung")

    def _doubts(self, count):
        """Commits whose answer is lost, one after the other."""
        for _ in range(count):
            self.between.cut_after_commit()
            time.sleep(random.uniform(0.05, 0.15))

    def _fail_over(self, record):
        """The machine of the database is gone, and its standby takes its place, with a standby of its own."""
        self.counts["failovers"] += 1
        self.primary.kill()
        self.standby.promote()
        promoted = time.monotonic()
        self.between.target = self.standby.address
        self.between.cut()

        def accepted():
            return [write.heard - promoted for write in list(record.writes) if write.asked > promoted and not write.refused]

        self.first_after.append(min(until(accepted, "something was accepted after the standby was promoted")))
        self.primary = self.standby
        self.standby = self.primary.standby()


def histories(nodes, record, life, ears, other):
    """What the other agent said in each task of a life over Grid."""
    caller, said = Caller(nodes, ears.name, record), {}
    for session, (requester, face) in record.sessions.items():
        if (requester, face) != (life.planner.name, "grid"):
            continue
        said[session], after = [], 0
        while after is not None:
            asked = {"taskId": session, "after": after}
            page, *_ = caller.persist(lambda node: caller.grid(node, "task/history", **asked))  # noqa: B023
            of_other = [one for one in page["messages"] if one["role"] != "system" and one["fromNodeId"] == other]
            said[session] += [one["sequence"] for one in of_other]
            after = page["next"]
    return said


def heard_all(ears, said):
    """Wait until a stream has told everything; what it told too much is found afterwards."""
    wanted = {(session, sequence) for session, sequences in said.items() for sequence in sequences}
    deadline = time.monotonic() + PATIENCE
    while not wanted <= set(ears.told()) and time.monotonic() < deadline:
        time.sleep(0.05)


def run(place, minutes):
    primary = database.started()
    between = Between(primary.address, doors=3)
    nodes = [Node(f"node-{door + 1}", between.url(door), place, **TIMES).start() for door in range(3)]
    record, ending, followed = Record(), threading.Event(), threading.Event()
    lives = [face(nodes, record, ending) for face in FACES for _ in range(EACH)]
    followers = [Follower(nodes, record, followed) for _ in range(2)]
    began, trouble = time.monotonic(), None
    try:
        for one in [*lives, *followers]:
            one.start()
        trouble = Trouble(nodes, between, primary, place)
        number = 0
        while not record.failures and not trouble.wrong and (not trouble.enough() or time.monotonic() - began < 60 * minutes):
            number += 1
            trouble.round(number, record)
            for life in (life for life in lives if isinstance(life, OverGrid)):
                random.choice(life.ears).move()
        between.delay = 0
        ending.set()
        for life in lives:
            life.join(3 * PATIENCE)
        followed.set()
        for follower in followers:
            follower.join(PATIENCE)
        fresh = Node("node-4", trouble.primary.url, place, **TIMES).start()
        nodes.append(fresh)
        witness = Witness(record, trouble.primary, [fresh])
        witness.check()
        witness.can_fail()
        for follower in followers:
            witness.follower(follower.read)
        for life in (life for life in lives if isinstance(life, OverGrid)):
            names = life.planner.name, life.worker.name
            for ears, other in zip(life.ears, reversed(names), strict=True):
                said = histories([fresh], record, life, ears, other)
                heard_all(ears, said)
                witness.ears(ears, said)
        statuses = [node.stop() for node in nodes]
        if any(statuses):
            witness.say("nodes ended with", statuses)
        witness.tables_can_fail()
    finally:
        for node in nodes:
            node.kill()
    report(record, trouble, witness, time.monotonic() - began)
    wrong = record.failures + trouble.wrong + witness.wrong
    for node in nodes if wrong else []:
        print(f"--- the end of the log of {node.name}\n{node.log()[-3000:]}")
    return wrong or [f"too little trouble: {trouble.counts}"] if wrong or not trouble.enough() else []


def report(record, trouble, witness, seconds):
    conflicts = sum(write.refused is not None for write in record.writes)
    again = sum(write.tries > 1 for write in record.writes)
    print(", ".join(f"{count} {name}" for name, count in trouble.counts.items()), f"in {seconds:.0f} s")
    events = sum(len(log) for log in witness.logs.values())
    print(
        f"{record.ended} tasks, {events} events, {len(record.writes)} writes of which {again} were sent again and {conflicts} refused, "
        f"{record.unanswered} requests without an answer, {len(record.reads)} reads"
    )
    print("from the promotion of a standby to the first accepted command:", *(f"{s:.2f} s" for s in trouble.first_after))
    print("timers of killed nodes after they were due and the lease was over:", *(f"{s:.2f} s" for s in trouble.late))


def main():
    parser = argparse.ArgumentParser(prog="handover-nodes", description=__doc__.split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=0, help="how long at least [default: until there was enough trouble]")
    parser.add_argument("--seed", type=int, default=None, help="what the choice of trouble begins with")
    parser.add_argument("--rolling", action="store_true", help="only restart the nodes, one after the other, behind a load balancer")
    given = parser.parse_args()
    if given.rolling:
        with tempfile.TemporaryDirectory(prefix="handover-nodes-") as place:
            end(rolling.run(place), "nobody noticed that the nodes were restarted")
        return
    seed = given.seed if given.seed is not None else random.randrange(1_000_000)
    random.seed(seed)
    print("seed", seed)
    with tempfile.TemporaryDirectory(prefix="handover-nodes-") as place:
        wrong = run(place, given.minutes)
    end(wrong, "nothing was lost, nothing happened twice, and nobody was shown anything out of date")


def end(wrong, well):
    for one in wrong[:20]:
        print("WRONG:", one)
    if wrong:
        sys.exit(f"{len(wrong)} things are wrong")
    print(well)


main()
