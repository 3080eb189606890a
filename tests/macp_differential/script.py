"""Random scripts: what several agents might do at a runtime, right and wrong, one step after the other.

A step is JSON. What must be new in each run (session ids, policy ids) is written as $name and filled in by the run. The
next step depends on what was accepted so far, so that scripts get far; a recorded script can be run again without its seed.
"""

import json
import random
import time

from runtime import HANDOFF, TASK

AGENTS = ["ann", "bob", "cyd", "dan"]
OUTSIDER = "eve"
TASK_TYPES = ["TaskRequest", "TaskAccept", "TaskReject", "TaskUpdate", "TaskComplete", "TaskFail"]
HANDOFF_TYPES = ["HandoffOffer", "HandoffContext", "HandoffAccept", "HandoffDecline"]
LONG_TTL_MS, SHORT_TTL_MS, IMPLICIT_MS = 600_000, 8_000, 400
TASK_RULES = [
    {},
    {"assignment": {"allow_reassignment_on_reject": True}},
    {"assignment": {"allow_reassignment_on_reject": True}},
    {"assignment": {"allow_reassignment_on_reject": True}},
    {"assignment": {"allow_reassignment_on_reject": True}, "completion": {"require_output": True}},
    {"completion": {"require_output": True}},
    {"commitment": {"authority": "any_participant"}},
    {"commitment": {"authority": "designated_role", "designated_roles": ["bob"]}, "assignment": {"allow_reassignment_on_reject": True}},
    {"commitment": {"authority": "designated_role", "designated_roles": ["eve"]}},
    {"commitment": {"authority": "initiator_only", "require_vote_quorum": True}, "$note": "x", "_note": {"y": 1}},
]
HANDOFF_RULES = [
    {},
    {"commitment": {"authority": "any_participant"}},
    {"commitment": {"authority": "designated_role", "designated_roles": ["bob"]}},
    {"acceptance": {"implicit_accept_timeout_ms": 0}},
    {"acceptance": {"implicit_accept_timeout_ms": IMPLICIT_MS}},
    {"acceptance": {"implicit_accept_timeout_ms": IMPLICIT_MS}, "commitment": {"authority": "any_participant"}},
]
BAD_RULES = [
    "", " ", "[]", "null", "{", '"x"', "7",
    '{"assignment": []}', '{"assignment": null}', '{"assignment": {"allow_reassignment_on_reject": "yes"}}', '{"assignment": {"allow_reassignment_on_reject": null}}',
    '{"assignment": {"extra": 1}}', '{"extra": {}}', '{"x-vendor": {}}', '{"completion": {"require_output": 1}}',
    '{"commitment": {"authority": "nobody"}}', '{"commitment": {"authority": 3}}', '{"commitment": {"authority": null}}', '{"commitment": null}',
    '{"commitment": {"authority": "designated_role"}}', '{"commitment": {"authority": "designated_role", "designated_roles": []}}',
    '{"commitment": {"authority": "designated_role", "designated_roles": [""]}}',
    '{"commitment": {"authority": "designated_role", "designated_roles": ["bob", "bob"]}}',
    '{"commitment": {"designated_roles": "bob"}}', '{"commitment": {"designated_roles": [1]}}', '{"commitment": {"designated_roles": ["bob"]}}',
    '{"commitment": {"require_vote_quorum": "x"}}',
    '{"acceptance": {"implicit_accept_timeout_ms": -1}}', '{"acceptance": {"implicit_accept_timeout_ms": 1.5}}', '{"acceptance": {"implicit_accept_timeout_ms": 2.0}}',
    '{"acceptance": {"implicit_accept_timeout_ms": "1"}}', '{"acceptance": {"implicit_accept_timeout_ms": 99999999999999999999}}', '{"acceptance": {"x": 1}}',
    '{"voting": {"algorithm": "majority"}}', '{"$x": 1, "_y": [2], "assignment": {"_z": 0}}',
]


def begun(at):
    """When a start says that it was made, if that is not about now: milliseconds from now on, or the time itself as text."""
    if at in (None, "-5"):
        return "never"
    if at == "1" or at < -60_000:
        return "long ago"
    return "in the future" if at > 1_000 else "a while ago" if at < -1_000 else ""


class Known:
    """What is known of a session from the answers that both gave: enough to go on, and to name a situation."""

    def __init__(self, step):
        fields = step["payload"]
        self.mode = step["mode"]
        self.initiator = step["by"]
        self.participants = list(fields["participants"])
        self.versions = [fields["mode_version"], fields["configuration_version"], fields["policy_version"]]
        self.ttl = fields["ttl_ms"]
        self.begun = f", begun {begun(step['at'])}" if begun(step["at"]) else ""
        self.state = "OPEN"
        self.task = self.named = self.assignee = self.report = None
        self.left = set()
        self.offers = {}
        self.sent = {}
        self.started = self.suspended = time.monotonic()

    def learn(self, step):
        """An accepted message."""
        kind, fields, by = step["type"], step["payload"], step["by"]
        self.sent[step["id"]] = step
        if isinstance(fields, str):
            return
        if kind == "TaskRequest":
            self.task, self.named = fields["task_id"], fields["requested_assignee"] or None
        elif kind == "TaskAccept":
            self.assignee = by
        elif kind == "TaskReject":
            self.left.add(by)
            self.assignee = None if self.assignee == by else self.assignee
        elif kind in ("TaskComplete", "TaskFail"):
            self.report = kind
        elif kind == "HandoffOffer":
            self.offers[fields["handoff_id"]] = [fields["target_participant"], "offered"]
        elif kind == "HandoffAccept":
            self.offers[fields["handoff_id"]][1] = "accepted"
        elif kind == "HandoffDecline":
            self.offers[fields["handoff_id"]][1] = "declined"
            self.left.add(by)

    def turn(self, state):
        """It was suspended, resumed or cancelled. Suspended time does not count."""
        now = time.monotonic()
        if state == "OPEN":
            self.started += now - self.suspended
        self.state, self.suspended = state, now

    def phase(self):
        if self.state != "OPEN":
            return self.state.lower()
        if self.mode == TASK:
            if self.report:
                # An assignee may leave after its report, where the policy lets it.
                return "reported" if self.assignee else "reported, unassigned"
            if self.assignee:
                return "assigned"
            return "pending" if self.task is None else "requested"
        return next((word for word in ("accepted", "offered") if any(one[1] == word for one in self.offers.values())),
                    "declined" if self.offers else "pending")

    def role(self, agent):
        if agent is None:
            return "nobody"
        words = [
            (agent == self.initiator, "initiator"),
            (agent == self.assignee, "assignee"),
            (agent == self.named, "named"),
            (agent in self.left, "left"),
            (any(one == [agent, "offered"] for one in self.offers.values()), "target"),
        ]
        found = [word for holds, word in words if holds]
        inside = "participant" if agent in self.participants else "outsider"
        return " ".join(found + ([] if found and inside == "participant" else [inside]))


class Writer:
    """Writes a script as it goes."""

    def __init__(self, seed, index, focus):
        self.dice = random.Random(f"{seed}:{index}")
        self.focus = focus
        self.known = {}
        self.policies = {}
        self.streams = {}
        self.names = self.messages = 0
        self.length = self.dice.randint(6, 26)
        self.queue = []
        self.signals = []
        self.waits = self.dice.random() < 0.05
        dice = self.dice.random()
        self.mode = TASK if dice < 0.55 else HANDOFF

    def chance(self, share):
        return self.dice.random() < share

    def pick(self, usual, *odd, share=0.03):
        """The usual value, or now and then one of the odd ones. Says which."""
        if odd and self.chance(share):
            return self.dice.choice(odd)
        return usual

    def name(self, prefix):
        self.names += 1
        return f"${prefix}{self.names}"

    def message_id(self):
        self.messages += 1
        return f"m{self.messages}"

    # What comes next

    def steps(self):
        """The script, step by step; whoever takes it tells `learn` what came of each."""
        if self.chance(0.6):
            for _ in range(self.dice.randint(1, 2)):
                yield self.register_policy()
        watch = None
        if self.chance(0.03):
            watch = {"do": "watch", "by": self.dice.choice([*AGENTS, OUTSIDER]), "watch": "watch", "what": self.dice.choice(["WatchSignals"] * 4 + ["WatchSessions"])}
            yield watch
        yield self.start()
        for _ in range(self.length):
            yield self.next()
        if watch:
            yield from self.mark(watch)
        for stream in list(self.streams):
            yield {"do": "close", "stream": stream, "by": self.streams[stream]["by"]}
        for session, known in list(self.known.items()):
            yield {"do": "get_session", "by": known.initiator, "session": session}
            yield {"do": "history", "by": known.initiator, "session": session, "after": 0}
        for policy in list(self.policies):
            yield {"do": "unregister_policy", "by": "ann", "policy": policy}

    def mark(self, watch):
        """The last thing that a watcher hears: its own."""
        mark, by = self.name("s"), watch["by"]
        step = {"do": "send", "by": by, "sender": by, "version": "1.0", "at": 0}
        if watch["what"] == "WatchSignals":
            step |= {"session": "", "mode": "", "type": "Signal", "id": mark, "payload": {"signal_type": "mark"}}
        else:
            fields = {"participants": [by, "zed"], "mode_version": "1.0.0", "configuration_version": "c1", "ttl_ms": LONG_TTL_MS,
                      "policy_version": "", "context_id": "", "max_suspend_ms": 0, "intent": ""}
            step |= {"session": mark, "mode": TASK, "type": "SessionStart", "id": "m0", "payload": fields}
        yield step | {"payload_of": step["type"]}
        yield {"do": "watched", "by": by, "watch": "watch", "mark": mark, "of": [*self.signals, *self.known]}

    def next(self):
        if self.queue:
            return self.queue.pop()
        live = [one for one, known in self.known.items() if known.state in ("OPEN", "SUSPENDED")]
        if not self.known or (not live and self.chance(0.5)):
            return self.start()
        dice = self.dice.random()
        session = self.dice.choice(live or list(self.known))
        if self.waits and dice < 0.12:
            # Until an offer was accepted for its target, and whatever has a short time to live has ended.
            return {"do": "wait", "by": None, "session": session, "ms": IMPLICIT_MS + 1_300}
        for share, make in (
            (0.02, self.start),
            (0.03, self.register_policy),
            (0.02, self.other_policy),
            (0.08, lambda: self.control(session)),
            (0.05, lambda: self.retry(session)),
            (0.06, lambda: self.look(session)),
            (0.10, lambda: self.stream(session)),
            (0.04, self.stray),
        ):
            if dice < share:
                return make()
            dice -= share
        return self.message(session)

    def register_policy(self):
        mode = TASK if self.chance(0.5) else HANDOFF
        rules = self.dice.choice(TASK_RULES if mode == TASK else HANDOFF_RULES)
        if not self.waits and "acceptance" in rules:
            rules = {}
        fault = None
        text = json.dumps(rules)
        if self.chance(0.25):
            text = self.dice.choice(BAD_RULES)
            fault = "rules=" + text
        id = self.name("p")
        if self.chance(0.08):
            id = self.dice.choice(["", " ", "policy.default", "policy.std.x", "policy.std.majority", "policy.mcp", *self.policies])
            fault = f"{fault or ''} id={id if id not in self.policies else 'used'}".strip()
        wanted = self.pick(mode, "*", "*", "macp.mode.decision.v1", "", "nope", "ext.multi_round.v1", share=0.2)
        schema = self.pick(1, 0, 2, 3, 4, share=0.12)
        return {"do": "register_policy", "by": "ann", "fault": fault,
                "descriptor": {"policy_id": id, "mode": wanted, "description": "d", "rules": text, "schema_version": schema}}

    def other_policy(self):
        id = self.pick(self.dice.choice(list(self.policies) or ["$pX"]), "policy.default", "policy.std.majority", "$pX", "", share=0.4)
        do = self.dice.choice(["unregister_policy", "get_policy", "list_policies"])
        step = {"do": do, "by": self.pick("ann", None, share=0.1), "policy": id}
        if do == "list_policies":
            step |= {"mode": self.pick("", TASK, HANDOFF, "nope", share=0.5), "of": list(self.policies)}
        return step

    def start(self):
        mode = self.pick(self.mode if self.chance(0.8) else self.dice.choice([TASK, HANDOFF]), "macp.mode.nope.v1", "", " ", "macp.mode.decision.v1", "MACP.MODE.TASK.V1")
        by = self.dice.choice(AGENTS[:2])
        people = self.dice.sample(AGENTS, self.dice.randint(2, 4))
        if by not in people:
            people[0] = by
        others = [agent for agent in people if agent != by]
        people = self.pick(people, [], [by], people + [others[0]], people + [""], people + [" "], others, others[:1], share=0.12)
        own = [id for id, one in self.policies.items() if one["mode"] in (mode, "*")]
        policy = self.dice.choice(own) if own and self.chance(0.8) else self.dice.choice(["", "policy.default"])
        policy = self.pick(policy, "policy.nope", " ", "policy.std.majority", *[id for id in self.policies if id not in own], share=0.05)
        ttl = SHORT_TTL_MS if self.waits and self.chance(0.6) else self.pick(LONG_TTL_MS, 0, -1, 86_400_000, 86_400_001, 1 << 62)
        fields = {
            "intent": self.pick("work", ""),
            "participants": people,
            "mode_version": self.pick("1.0.0", "", " ", "1.0", "2.0.0", " 1.0.0"),
            "configuration_version": self.pick("c1", "", " ", "x" * 200),
            "policy_version": policy,
            "ttl_ms": ttl,
            "context_id": self.pick("", "ctx", "x" * 1000, share=0.2),
            "max_suspend_ms": self.pick(0, -1, 5_000, 1 << 50, share=0.06),
        }
        if self.chance(0.1):
            fields["extensions"] = {"b.x": {"hex": "00ff"}, "a.y": {"hex": ""}}
        session = self.pick(self.name("s"), *[self.name("b"), self.name("v"), self.name("U"), "short", "", " ", "x" * 129, "x" * 128 + "=", *self.known], share=0.08)
        return self.envelope(session, by, "SessionStart", fields, mode)

    def envelope(self, session, by, kind, fields, mode, id=None):
        """A message, with the faults that any message may have."""
        payload = fields
        if self.chance(0.015):
            payload = self.dice.choice(["", "ff", "0a05", "08ff"])
        sender = self.pick(by, "", "zed", share=0.06)
        at = self.pick(0, None, -20_000, 20_000, "1", "-5", -300_000, 7_200_000, share=0.03 if kind == "SessionStart" else 0.08)
        step = {
            "do": "send", "by": self.pick(by, None, share=0.004), "session": session, "type": kind, "payload_of": kind,
            "id": id if id and not self.chance(0.02) else self.pick(self.message_id(), "", "x" * 300, "implicit-accept:h1", "handover:1", " ", share=0.02),
            "payload": payload, "mode": mode, "version": self.pick("1.0", "", "2.0", "1.0.0", share=0.012), "sender": sender, "at": at,
        }
        if self.chance(0.01):
            step["header"] = "x"
        return step

    def message(self, session):
        known = self.known[session]
        kinds = TASK_TYPES if known.mode == TASK else HANDOFF_TYPES
        phase = known.phase()
        likely = {
            "pending": ["TaskRequest", "HandoffOffer"], "requested": ["TaskAccept", "TaskAccept", "TaskReject"],
            "assigned": ["TaskUpdate", "TaskComplete", "TaskFail", "TaskReject", "TaskReject"], "reported": ["Commitment"],
            "offered": ["HandoffAccept", "HandoffDecline", "HandoffContext"], "accepted": ["Commitment", "HandoffContext"],
            "declined": ["HandoffOffer", "HandoffOffer", "Commitment"],
        }.get(phase, [])
        likely = [kind for kind in likely if kind in kinds or kind == "Commitment"]
        kind = self.dice.choice(likely) if likely and self.chance(0.6) else self.dice.choice([*kinds, "Commitment"])
        if self.chance(0.02):
            kind = self.dice.choice(["Bogus", "taskaccept", "SessionCancel", "SessionSuspend", "SessionResume", "", *TASK_TYPES, *HANDOFF_TYPES])
        by = self.sender(known, kind)
        fields = self.fields(known, kind, by)
        mode = self.pick(known.mode, TASK, HANDOFF, "macp.mode.decision.v1", "nope", "", share=0.02)
        step = self.envelope(session, by, kind, fields, mode)
        step["payload_of"] = kind if fields else "TaskAccept"
        return step

    def sender(self, known, kind):
        right = {
            "TaskRequest": known.initiator, "HandoffOffer": known.initiator, "HandoffContext": known.initiator, "Commitment": known.initiator,
            "TaskAccept": known.named, "TaskReject": known.assignee or known.named, "TaskUpdate": known.assignee, "TaskComplete": known.assignee,
            "TaskFail": known.assignee,
            "HandoffAccept": next((one[0] for one in known.offers.values() if one[1] == "offered"), None),
        }
        right["HandoffDecline"] = right["HandoffAccept"]
        if right.get(kind) in (*AGENTS, OUTSIDER) and self.chance(0.75):
            return right[kind]
        return self.dice.choice([*AGENTS, *AGENTS, OUTSIDER])

    def fields(self, known, kind, by):
        other = self.dice.choice([agent for agent in AGENTS if agent != by])
        task = self.pick(known.task or "t1", "t2", "", share=0.06)
        assignee = self.pick("" if self.chance(0.5) else by, other, "zed", share=0.05)
        open_offers = [id for id, one in known.offers.items() if one[1] == "offered"]
        offer = self.pick(self.dice.choice(open_offers or list(known.offers) or ["h1"]), "h1", "h9", "", share=0.1)
        answered_by = self.pick("" if self.chance(0.5) else by, other, share=0.06)
        if kind == "TaskRequest":
            named = self.dice.choice(["", *[agent for agent in known.participants if agent]])
            return {
                "task_id": self.pick("t1", "", " ", "x" * 200), "title": self.pick("title", ""), "instructions": self.pick("do", ""),
                "requested_assignee": self.pick(named, known.initiator, OUTSIDER, "zed", " ", share=0.1), "input": {"hex": self.pick("", "01", share=0.3)},
                "deadline_unix_ms": self.pick(0, -1, 1, 1 << 41, share=0.1),
            }
        if kind in ("TaskAccept", "TaskReject"):
            return {"task_id": task, "assignee": assignee, "reason": self.pick("", "why", share=0.3)}
        if kind == "TaskUpdate":
            status = self.pick("running", "", "input_required", "blocked", share=0.2)
            partial = self.pick("", "7b7d", "ff", share=0.2)
            return {"task_id": task, "status": status, "progress": self.pick(0.5, 0.0, 1.0, 7.0, -1.0, float("1e300"), share=0.2), "message": "m", "partial_output": {"hex": partial}}
        if kind == "TaskComplete":
            return {"task_id": task, "assignee": assignee, "output": {"hex": self.pick("0102", "", share=0.3)}, "summary": self.pick("done", "")}
        if kind == "TaskFail":
            return {"task_id": task, "assignee": assignee, "error_code": self.pick("E", ""), "reason": self.pick("why", ""), "retryable": self.chance(0.5)}
        if kind == "HandoffOffer":
            target = self.dice.choice([agent for agent in known.participants if agent != known.initiator] or [other])
            new = f"h{len(known.offers) + 1}"
            return {
                "handoff_id": self.pick(new, "", " ", "h1", share=0.06), "target_participant": self.pick(target, known.initiator, OUTSIDER, "", " ", share=0.08),
                "scope": self.pick("scope", "", "task:$s99", "task:", share=0.05), "reason": self.pick("why", ""),
            }
        if kind == "HandoffContext":
            return {"handoff_id": offer, "content_type": self.pick("text/plain", ""), "context": {"hex": self.pick("61", "")}}
        if kind == "HandoffAccept":
            return {"handoff_id": offer, "accepted_by": answered_by, "reason": self.pick("", "why"), "implicit": self.chance(0.03)}
        if kind == "HandoffDecline":
            return {"handoff_id": offer, "declined_by": answered_by, "reason": self.pick("", "why")}
        if kind == "Commitment":
            return self.commitment(known)
        return {}

    def commitment(self, known):
        good = "task.completed" if known.mode == TASK else "handoff.accepted"
        bad = "task.failed" if known.mode == TASK else "handoff.declined"
        positive = self.chance(0.6) if known.phase() not in ("requested", "pending") else self.chance(0.2)
        action = good if positive else bad
        fields = {
            "commitment_id": self.pick("k1", "", " "), "action": self.pick(action, "", " ", "x", "x.rejected", "x.selected", "approved", "Task.Completed", share=0.08),
            "authority_scope": self.pick("scope", "", " "), "reason": self.pick("why", "", " "),
            "mode_version": self.pick(known.versions[0], "", "2.0.0", share=0.02), "configuration_version": self.pick(known.versions[1], "", "c2", share=0.02),
            "policy_version": self.pick(self.dice.choice(["", known.versions[2]]), "policy.nope", "policy.default", share=0.04),
            "outcome_positive": positive if self.chance(0.96) else not positive,
        }
        if self.chance(0.06):
            hash = "sha256:" + "a" * 64
            fields["supersedes"] = {"session_id": self.pick("$sX", "", " ", share=0.2), "commitment_hash": self.pick(hash, "", hash.upper(), hash[:-1], "x", share=0.3)}
        return fields

    def control(self, session):
        known = self.known[session]
        by = self.pick(known.initiator, *AGENTS, OUTSIDER, share=0.35)
        what = "resume" if known.state == "SUSPENDED" and self.chance(0.7) else self.dice.choice(["suspend", "suspend", "resume", "cancel"])
        return {"do": "control", "what": what, "by": self.pick(by, None, share=0.02), "session": self.pick(session, "$s98", "short", "", share=0.05), "reason": self.pick("", "why")}

    def retry(self, session):
        """A message that was accepted, sent again: as it was, or with something else in it."""
        known = self.known[session]
        if not known.sent:
            return self.message(session)
        step = json.loads(json.dumps(self.dice.choice(list(known.sent.values()))))
        step["do"] = "send"
        step.pop("stream", None)
        step.pop("bound", None)
        if self.chance(0.5):
            return step
        what = self.dice.choice(["by", "type", "payload", "at", "fresh"])
        if what == "by":
            step["by"] = step["sender"] = self.dice.choice([*AGENTS, OUTSIDER])
        elif what == "type":
            step["type"] = step["payload_of"] = "TaskAccept" if known.mode == TASK else "HandoffAccept"
            step["payload"] = {"reason": "other"}
        elif what == "payload":
            step["payload"] = self.fields(known, step["type"], step["by"]) or ""
        elif what == "at":
            step["at"] = 1
        else:
            step["id"] = self.message_id()
        return step

    def look(self, session):
        known = self.known[session]
        by = self.pick(known.initiator, *AGENTS, OUTSIDER, None, share=0.4)
        dice = self.dice.random()
        if dice < 0.6:
            return {"do": "get_session", "by": by, "session": self.pick(session, "$s98", "short", "", share=0.05)}
        if dice < 0.75:
            return {"do": "history", "by": by or "ann", "session": session, "after": self.dice.choice([0, 0, 1, 2, 3, 99])}
        if dice < 0.9:
            candidate = self.dice.choice(TASK_RULES if known.mode == TASK else HANDOFF_RULES)
            text = json.dumps(candidate) if self.chance(0.8) else self.dice.choice(BAD_RULES)
            return {"do": "what_if", "by": by, "session": session, "fault": "rules=" + text,
                    "descriptor": {"policy_id": self.pick("policy.candidate", "", "policy.default", share=0.1), "mode": self.pick(known.mode, "*", "nope", share=0.1), "rules": text, "schema_version": self.pick(1, 0, 4, share=0.05)}}
        if dice < 0.93:
            return {"do": "list_sessions", "by": by, "size": self.pick(1000, -1, share=0.2), "token": self.pick("", "!", share=0.2), "of": list(self.known)}
        if dice < 0.97:
            return {"do": "initialize", "by": None, "versions": self.dice.choice([["1.0"], [], ["2.0"], ["2.0", "1.0"], [""]])}
        return {"do": "modes", "by": None}

    def stream(self, session):
        """One step of a stream: opened, spoken on, closed."""
        open_ones = [one for one in self.streams if not self.streams[one]["over"]]
        if not open_ones or (len(open_ones) < 2 and self.chance(0.2)):
            known = self.known[session]
            name = f"stream{len(self.streams) + 1}"
            by = self.pick(self.dice.choice([known.initiator, *known.participants]), OUTSIDER, share=0.05) or "ann"
            return {"do": "open", "by": by, "stream": name, "session": session}
        name = self.dice.choice(open_ones)
        stream = self.streams[name]
        dice = self.dice.random()
        on = {"stream": name, "by": stream["by"]}
        if dice < 0.35:
            return {"do": "subscribe", **on, "session": self.pick(stream["session"], session, "$s98", "short", share=0.1), "after": self.dice.choice([0, 0, 1, 2, 99])}
        if dice < 0.85:
            step = self.message(stream["session"]) if self.chance(0.85) else self.retry(stream["session"])
            return self.on_stream(step, stream, name)
        if dice < 0.9:
            return self.on_stream(self.start(), stream, name)
        return {"do": "close", **on}

    def on_stream(self, step, stream, name):
        """The same message as a frame: its sender is whoever opened the stream."""
        if step["sender"] == step["by"]:
            step["sender"] = stream["by"]
        step |= {"do": "frame", "by": stream["by"], "stream": name, "bound": stream["session"]}
        if not step["session"] or self.chance(0.02):
            step["subscribe"] = self.pick("", stream["session"], share=0.5)
        return step

    def stray(self):
        """Something about a session that is not there, or a signal."""
        dice = self.dice.random()
        by = self.dice.choice([*AGENTS, OUTSIDER])
        if dice < 0.4:
            session = self.dice.choice(["$s97", "short", "", " "])
            kind = self.dice.choice(["TaskRequest", "TaskAccept", "HandoffOffer", "Commitment", "Bogus"])
            return self.envelope(session, by, kind, "", self.dice.choice([TASK, HANDOFF]))
        kind = self.dice.choice(["Signal", "Progress"])
        known = self.dice.choice(list(self.known))
        about = self.pick("", known, "$s97", share=0.4)
        mode = self.pick(self.known[known].mode if about else "", "", TASK, "nope", share=0.15)
        fields = {"signal_type": self.pick("note", "", " ", share=0.15), "data": {"hex": "61"}} if kind == "Signal" else {"progress_token": "t", "progress": 0.5, "total": 1.0}
        self.signals.append(self.name("s"))
        return self.envelope(about, by, kind, fields, mode, id=self.signals[-1])

    # What came of it

    def learn(self, step, answer):
        """Both answered this to a step."""
        do = step["do"]
        if do == "register_policy" and answer == "ok":
            self.policies[step["descriptor"]["policy_id"]] = step["descriptor"]
        elif do == "unregister_policy" and answer == "ok":
            self.policies.pop(step["policy"], None)
        elif do == "open":
            self.streams[step["stream"]] = {"by": step["by"], "session": step["session"], "over": False}
        elif do == "close":
            self.streams[step["stream"]]["over"] = True
        elif do in ("send", "frame"):
            if do == "frame" and answer == "delivered":
                self.streams[step["stream"]]["session"] = step["session"]
            self.learn_message(step, answer)
        elif do == "control" and answer.startswith("ok ") and step["session"] in self.known:
            self.known[step["session"]].turn(answer.split()[1])
        elif do == "wait":
            for known in self.short_lived():
                known.state = "EXPIRED"
        if do in ("frame", "subscribe") and isinstance(answer, str) and answer.startswith("end"):
            self.streams[step["stream"]]["over"] = True

    def short_lived(self):
        """The sessions whose time is running out."""
        return [known for known in self.known.values() if known.ttl == SHORT_TTL_MS and known.state == "OPEN"]

    def learn_message(self, step, answer):
        if not (answer.startswith("ok ") or answer == "delivered") or step["type"] in ("Signal", "Progress"):
            return
        if step["type"] == "SessionStart":
            if isinstance(step["payload"], dict):
                self.known[step["session"]] = Known(step)
                self.known[step["session"]].sent[step["id"]] = step
                if self.known[step["session"]].begun:
                    # A session's time may have begun elsewhere: look, before anything rests on it.
                    self.queue.append({"do": "get_session", "by": step["by"], "session": step["session"]})
        elif step["session"] in self.known:
            known = self.known[step["session"]]
            known.learn(step)
            if step["type"] == "Commitment":
                known.state = "RESOLVED"
