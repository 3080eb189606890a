"""Compares what agents asked and heard with what is stored, as the database and a node that has just started have it."""

import collections
import copy
import itertools
import json
from dataclasses import dataclass, replace

from lives import ENDS, Caller


@dataclass
class Told:
    """What ears could have been told."""

    name: str
    all: list

    def told(self):
        return self.all


class Witness:
    """Collects what is wrong, as sentences."""

    def __init__(self, record, database, nodes):
        self.record, self.database, self.nodes = record, database, nodes
        self.wrong = []
        self.logs = {session: self._log(session, *whose) for session, whose in list(record.sessions.items())}

    def _log(self, session, requester, _):
        """The whole history of a session, from the first node that gives it."""
        caller, events, more = Caller(self.nodes, requester, self.record), [], True
        while more:
            after = events[-1]["seq"] if events else 0
            asked = {"task_id": session, "after": after, "max": 500}
            page, *_ = caller.persist(lambda node: caller.mcp(node, "task_timeline", **asked))  # noqa: B023
            events += page["events"]
            more = bool(page["events"])
        return events

    def check(self):
        """Everything that is wrong."""
        for check in (self.tables, self.writes, self.real_time, self.reads, self.races):
            check()
        return self.wrong

    def can_fail(self):
        """What each check says of a record that is wrong in one way; what it says of none is a check that shows nothing."""
        read = next(read for read in self.record.reads if len(read.events) > 3)
        write = next(write for write in self.record.writes if write.refused is None and write.session == read.session)
        first, last = self.places[read.session][0][0], self.places[read.session][-1][0]
        session, *_ = self.record.won
        tampered = {
            "an answer without an event": ([replace(write, mark="mark-never-")], [], {}),
            "a refusal with an event": ([replace(write, refused="FORBIDDEN")], [], {}),
            "an order that is not that of the time": (
                [replace(first, asked=last.heard + 1, heard=last.heard + 2), replace(last, asked=0)], [], {}),
            "a read without what was acknowledged": ([write], [replace(read, asked=write.heard + 1, events=[])], {}),
            "a read of what was not asked yet": ([last], [replace(read, heard=last.asked - 1, events=self.logs[read.session])], {}),
            "a read of something else": ([], [replace(read, events=read.events[1:])], {}),
            "two that have one task": ([], [], {session: ["worker", "helper"]}),
        }
        for what, (writes, reads, won) in tampered.items():
            other = copy.copy(self)
            other.record, other.wrong = replace(self.record, writes=writes, reads=reads, won=won), []
            other.writes(), other.real_time(), other.reads(), other.races()
            if not other.wrong:
                self.say("nobody noticed", what)
        told = self.logs[read.session]
        last = next(at for at, event in enumerate(told, 1) if event["kind"] in ENDS)
        for what, events in {
            "a follower that was not told the end": told[: last - 1],
            "a follower that was told something twice": [*told[:2], *told[1:]],
            "a follower that was told something too early": [told[1], told[0], *told[2:]],
        }.items():
            self._notices(what, lambda other: other.follower({read.session: events}))  # noqa: B023
        said = {"s": [1, 2, 3]}
        for what, sequences in {"a message that was not told": [1, 2], "one told twice": [1, 2, 2, 3], "one too early": [2, 1, 3]}.items():
            ears = Told("ears", [("s", sequence) for sequence in sequences])
            self._notices(what, lambda other: other.ears(ears, said))  # noqa: B023

    def tables_can_fail(self):
        """The same of what is stored. Nobody can use it afterwards."""
        of_one = "(SELECT {} FROM handover.events WHERE seq = {} LIMIT 1)"
        for what, spoil in {
            "an event that is gone": f"DELETE FROM handover.events WHERE (sid, seq) = {of_one.format('sid, seq', 2)}",
            "a stamp that is no later than that before": f"UPDATE handover.events SET stamp = 0 WHERE (sid, seq) = {of_one.format('sid, seq', 3)}",
            "a number that nobody has": "UPDATE handover.slots SET number = number + 1 WHERE number > 0",
        }.items():
            before = self._found(Witness.tables)
            self.database.query(spoil)
            if not self._found(Witness.tables) - before:
                self.say("nobody noticed", what)

    def _notices(self, what, check):
        if not self._found(check):
            self.say("nobody noticed", what)

    def _found(self, check):
        """What a check finds wrong, which is kept for itself."""
        other = copy.copy(self)
        other.wrong = []
        check(other)
        return set(other.wrong)

    def say(self, *words):
        self.wrong.append(" ".join(str(word) for word in words))

    def tables(self):
        """Each log has every number once, and later events have later stamps."""
        gaps = """SELECT encode(sid, 'hex'), count(*), max(seq) FROM handover.events GROUP BY sid HAVING count(*) <> max(seq)"""
        for sid, count, last in self.database.query(gaps):
            self.say("session", sid, "has", count, "events and the last number is", last)
        slots = """SELECT s.slot, s.number, count(*) FROM handover.slots s
                   JOIN (SELECT slot, number FROM handover.events UNION ALL SELECT slot, number FROM handover.notes) e
                   USING (slot) GROUP BY s.slot, s.number HAVING count(*) <> s.number"""
        for slot, number, count in self.database.query(slots):
            self.say("slot", slot, "has", count, "events and notes and its last number is", number)
        stamps = """SELECT count(*) FROM (SELECT stamp - lag(stamp) OVER (PARTITION BY {} ORDER BY {}) AS step
                    FROM handover.events) s WHERE step <= 0"""
        for part, order in (("sid", "seq"), ("slot", "number")):
            [[count]] = self.database.query(stamps.format(part, order))
            if count != "0":
                self.say(count, "events have no later stamp than the one before them by", part)

    def writes(self):
        """What was acknowledged is there once, and what was refused is not."""
        self.found = collections.defaultdict(list)
        marked = {(write.session, write.mark) for write in self.record.writes}
        for session, events in self.logs.items():
            for event in (event for event in events if not repeats(event)):
                for mark in marks_in(event):
                    if (session, mark) in marked:
                        self.found[session, mark].append(event["seq"])
        for write in self.record.writes:
            found = self.found[write.session, write.mark]
            if len(found) != (0 if write.refused else 1):
                self.say(write.mark, "of", write.session, "was", write.refused or "acknowledged", "and is at", [(at, self.logs[write.session][at - 1]["kind"]) for at in found])

    def real_time(self):
        """What was asked after something was acknowledged stands after it."""
        of = collections.defaultdict(list)
        for write in self.record.writes:
            if (found := self.found[write.session, write.mark]) and not write.refused:
                of[write.session].append((write, found[0]))
        self.places = of
        for session, writes in of.items():
            for before, at in writes:
                for after, later in writes:
                    if before.heard < after.asked and at >= later:
                        self.say(after.mark, "of", session, "was asked after", before.mark, "and stands before it")

    def reads(self):
        """What was shown is the beginning of the log, with everything that had been acknowledged, and nothing not yet asked."""
        for read in self.record.reads:
            count = len(read.events)
            if differs := self._differs(read.session, read.events):
                self.say("a read of", read.session, "showed", differs)
            for write, at in self.places[read.session]:
                if write.heard < read.asked and at > count:
                    self.say("a read of", read.session, "did not show", write.mark)
                if write.asked > read.heard and at <= count:
                    self.say("a read of", read.session, "showed", write.mark, "before it was asked for")

    def _differs(self, session, events):
        """The first event that is not the log's, and what the log has there."""
        log = self.logs.get(session, [])
        for told, stored in itertools.zip_longest(events, log[: len(events)]):
            if told is None or stored is None or bare(told) != bare(stored):
                return f"{told}, where the log has {stored}"
        return None

    def races(self):
        """Of those who wanted a task one was told that it has it: the one that the log names."""
        for session, winners in self.record.won.items():
            accepted = [event["by"] for event in self.logs[session] if event["kind"] == "accepted"]
            if winners != accepted:
                self.say("of", session, winners, "were told that they have it, and the log says", accepted)

    def follower(self, read):
        """Whoever followed sessions was told every event once and in order, up to the end."""
        for session, events in read.items():
            if differs := self._differs(session, events):
                self.say("a follower of", session, "was told", differs)
            log = self.logs.get(session, [])
            end = next((at for at, event in enumerate(log, 1) if event["kind"] in ENDS), len(log))
            if len(events) < end:
                self.say("a follower of", session, "was told", len(events), "events of", end)

    def ears(self, ears, histories):
        """Whoever listened on Grid was told every message of the other agent once and in order."""
        told = collections.defaultdict(list)
        for session, sequence in ears.told():
            told[session].append(sequence)
        for session, said in histories.items():
            if told[session] != said:
                self.say(ears.name, "was told", told[session], "of", session, "where it was", said)


def repeats(event):
    """Whether an event says what another one says: a start the title of its request, a report on Grid the message that delivers."""
    is_report = event["kind"] == "completed" and event["face"] not in ("macp", "mcp")
    return is_report or event["kind"] == "started"


def marks_in(event):
    """The marks that an event carries."""
    words = json.dumps(event["detail"]).replace('"', " ").replace("\\", " ").split()
    return {word for word in words if word.startswith("mark-")}


def bare(event):
    """What must be the same whoever shows it."""
    return {name: event[name] for name in ("seq", "by", "face", "kind", "detail")}
