"""The same random scripts at Handover and at the reference runtime, in lock step: every difference is listed, or a failure.

    python tests/macp_differential --handover BINARY --reference BINARY [--seed N] [--scripts N]
"""

import argparse
import asyncio
import json
import pathlib
import re
import secrets
import sys
import tempfile
import time
import tomllib
import uuid

import runtime
from runtime import Side
from script import SHORT_TTL_MS, Writer, begun

LISTED = pathlib.Path(__file__).with_name("differences.toml")
# Clocks of two processes, read one after the other.
CLOCK_MS = 1_500


class Void(Exception):
    """The machine was too slow for what a script waits for, so that its answers say nothing."""


def fill(step, names):
    """A step with everything in it that is new in each run."""

    def new(found):
        word = found.group(0)
        if word not in names:
            made = str(uuid.uuid4())
            kind = word[1]
            names[word] = {
                "s": made,
                "U": made.upper(),
                "v": made[:14] + "7" + made[15:],
                "b": secrets.token_urlsafe(18),
                "p": f"policy.t-{made}",
            }[kind]
        return names[word]

    filled = json.loads(re.sub(r"\$[sUvbp][0-9X]+", new, json.dumps(step)))
    at = filled.get("at")
    if at is not None:
        filled["at"] = int(at) if isinstance(at, str) else int(time.time() * 1000) + at
    return filled


def same(ours, theirs):
    """Whether two answers are the same; times may differ by what clocks may."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return not differing(ours, theirs)
    return ours == theirs


def differing(ours, theirs):
    """The parts in which two answers differ."""
    parts = []
    for key in sorted({*ours, *theirs}):
        one, other = ours.get(key), theirs.get(key)
        if key == "started" and abs(one - other) <= CLOCK_MS:
            continue
        if key == "span" and abs(one - other) <= CLOCK_MS:
            continue
        if key == "envelopes" and len(one) == len(other):
            # One without a time has that of its acceptance.
            times = [(mine[5], its[5]) for mine, its in zip(one, other)]
            if all(abs(mine - its) <= CLOCK_MS for mine, its in times):
                one, other = ([[*sent[:5], sent[6]] for sent in side] for side in (one, other))
        if isinstance(one, dict) and isinstance(other, dict) and "started" in one and "started" in other:
            parts += [f"{part}" for part in differing(one, other)]
        elif one != other:
            parts.append(key)
    return parts


def brief(answer, other):
    """An answer as a kind of difference names it."""
    if isinstance(answer, str):
        return answer
    if not isinstance(other, dict):
        return "answers"
    parts = differing(answer, other)
    if parts == ["heard"]:
        return "hears " + (", ".join(sorted({one[0] for one in answer["heard"] if one not in other["heard"]})) or "no more")
    if parts == ["envelopes"]:
        return delivered(answer["envelopes"], other["envelopes"])
    if parts == ["entries"]:
        return f"{len(answer['entries'])} entries" if len(answer["entries"]) != len(other["entries"]) else "entries"
    return json.dumps({key: rounded(answer.get(key)) for key in parts}, sort_keys=True)


def rounded(value):
    """A span of time to the next ten seconds, so that the same thing has the same name."""
    return f"{round(value / 10_000)}0 s" if isinstance(value, int) and abs(value) > 10_000 else value


def delivered(ours, theirs):
    """In what two streams differ: what one has and the other has not, or the parts of what both have."""
    columns = ["type", "id", "sender", "mode", "version", "time", "payload"]
    if [one[:2] for one in ours] != [one[:2] for one in theirs]:
        other = [one[1] for one in theirs]
        return "has " + ", ".join(one[0] for one in ours if one[1] not in other) if len(ours) > len(theirs) else "lacks or has in another order"
    found = set()
    for one, other in zip(ours, theirs):
        found |= {f"{one[0]} {column}" for column, mine, its in zip(columns, one, other) if mine != its and column != "time"}
        if abs(one[5] - other[5]) > CLOCK_MS:
            least = min(one[5], other[5])
            found.add("a time before the epoch" if least < 0 else f"{one[0]} time" if least else "no time")
    return "envelopes: " + ", ".join(sorted(found))


class Situation:
    """Names what a step does, by whom and where, in words that the same thing always has."""

    def __init__(self):
        self.known = {}
        self.streams = {}
        self.writer = None

    def name(self, step):
        do = step["do"]
        session = self.writer.streams[step["stream"]]["session"] if do == "close" else step.get("session")
        known = self.writer.known.get(session)
        where = known.phase() + known.begun if known else "unknown session"
        if known:
            who = known.role(step["by"])
            mode = known.mode.split(".")[-2]
        else:
            who, mode = "nobody" if step["by"] is None else "somebody", ""
        if do in ("send", "frame"):
            what = step["type"] or "(no type)"
            odd = self.oddities(step, known)
            if step["type"] == "SessionStart" and known:
                where = "session exists"
                if step["mode"] != known.mode:
                    odd.insert(0, f"mode={step['mode']}")
            text = f"{do} {what}{{{'; '.join(odd)}}}"
        elif do == "control":
            text = step["what"]
        elif do in ("register_policy", "what_if"):
            one = step["descriptor"]
            text = f"{do} mode={one['mode']} schema={one['schema_version']} id={one['policy_id'].rstrip('0123456789')} {one['rules']}"
            if do == "register_policy":
                return text
        elif do in ("unregister_policy", "get_policy"):
            return f"{do} {'own' if step['policy'] in self.writer.policies else step['policy']}"
        elif do in ("list_policies",):
            return f"{do} {step['mode']}"
        elif do in ("watch", "watched"):
            return f"{do} {step.get('what', '')}"
        elif do == "list_sessions":
            return f"{do} size={step['size']} token={step['token']}"
        elif do in ("initialize", "modes"):
            return f"{do} {step.get('versions', '')}"
        else:
            text = do
            if do in ("subscribe", "history") and step["after"]:
                text += f" after={step['after']}"
        if do in ("frame", "subscribe"):
            stream = self.writer.streams.get(step["stream"], {})
            text += " " + ("on its stream" if stream.get("session") == session else "on another's stream")
        return f"{text} by {who} | {mode} {where}".replace("  ", " ")

    def oddities(self, step, known):
        odd = []
        if step["version"] != "1.0":
            odd.append("version")
        if step["sender"] not in (step["by"], ""):
            odd.append("sender=other")
        if known and step["mode"] != known.mode and step["type"] != "SessionStart":
            odd.append(f"mode={step['mode']}")
        elif not known and step["mode"] not in (runtime.TASK, runtime.HANDOFF):
            odd.append(f"mode={step['mode']}")
        if known and step["id"] in known.sent:
            first = known.sent[step["id"]]
            changed = [word for word in ("by", "type", "payload", "at") if first[word] != step[word]]
            odd.append("id=used" + ("".join(f" other {word}" for word in changed)))
        elif not re.fullmatch(r"m\d+|\$s\d+", step["id"]):
            odd.append(f"id={step['id'][:17]}" + ("…" if len(step["id"]) > 17 else ""))
        session = step["session"]
        if not re.match(r"\$", session):
            odd.append(f"session={session[:8]}" + ("…" if len(session) > 8 else ""))
        elif session[1] != "s":
            odd.append(f"session={session[1]}")
        if step.get("subscribe"):
            odd.append("subscribes as well")
        if step["type"] == "SessionStart" and (when := begun(step["at"])):
            odd.append(f"at={when}")
        fields = step["payload"]
        if isinstance(fields, str):
            return [*odd, f"payload={fields or 'none'}"]
        return odd + [f"{key}={value}" for key, value in self.fields(step, known, fields)]

    def fields(self, step, known, fields):
        by = step["by"]
        task = known.task if known and known.task is not None else "t1"
        usual = {
            "task_id": [task], "assignee": ["", by], "title": None, "instructions": None, "input": None, "reason": None if step["type"] != "Commitment" else ["why"],
            "status": None, "progress": None, "message": None, "partial_output": None, "output": None, "summary": None, "error_code": None, "retryable": None,
            "content_type": None, "context": None, "intent": None, "accepted_by": ["", by], "declined_by": ["", by], "implicit": [False],
            "scope": ["scope"], "commitment_id": ["k1"], "authority_scope": ["scope"], "ttl_ms": [600_000, SHORT_TTL_MS], "context_id": [""], "max_suspend_ms": [0],
            "configuration_version": ["c1"], "mode_version": ["1.0.0"], "deadline_unix_ms": [0], "signal_type": ["note"], "data": None,
            "progress_token": None, "total": None, "extensions": None,
        }
        for key, value in sorted(fields.items()):
            if key == "participants":
                people = [agent for agent in value if agent.strip()]
                words = [
                    (not value, "none"), (len(set(people)) != len(people), "twice"), (len(people) != len(value), "empty"),
                    (by not in people, "without initiator"), (not [agent for agent in people if agent != by], "nobody else"),
                ]
                if found := [word for holds, word in words if holds]:
                    yield key, ", ".join(found)
            elif key == "policy_version":
                bound = known.versions[2] if known else None
                if step["type"] == "SessionStart":
                    own = self.writer.policies.get(value)
                    if own:
                        fits = own["mode"] in (step["mode"], "*")
                        if not fits:
                            yield key, "of another mode"
                    elif value not in ("", "policy.default"):
                        yield key, value
                elif value not in ("", bound, *(["policy.default"] if bound == "" else [])):
                    yield key, "other"
            elif key == "requested_assignee":
                if value:
                    yield key, known.role(value) if known else value
            elif key == "target_participant":
                role = known.role(value) if known else value
                if role != "participant":
                    yield key, role if value.strip() else repr(value)
            elif key == "handoff_id":
                offers = known.offers if known else {}
                if step["type"] == "HandoffOffer":
                    if value in offers or not value.strip():
                        yield key, "used" if value in offers else repr(value)
                elif value not in offers:
                    yield key, "unknown"
                elif offers[value][1] != "offered" and step["type"] != "HandoffContext":
                    yield key, offers[value][1]
            elif key in ("action", "outcome_positive"):
                continue
            elif key == "supersedes":
                good = value["session_id"].strip() and re.fullmatch("sha256:[0-9a-f]{64}", value["commitment_hash"])
                yield key, "good" if good else "bad"
            elif key == "progress" and value < 0:
                yield key, value
            elif usual.get(key) is not None and value not in usual[key]:
                text = str(value)
                yield key, repr(text[:12]) + ("…" if len(text) > 12 else "")
        if step["type"] == "Commitment" and "action" in fields:
            yield "outcome", f"{fields['action'][:16]}{'+' if fields['outcome_positive'] else '-'}"


class Difference:
    """One difference: its kind, and the script up to it."""

    def __init__(self, kind, steps, ours, theirs):
        self.kind, self.steps, self.ours, self.theirs = kind, steps, ours, theirs


class Run:
    """One script at both runtimes."""

    def __init__(self, sides, listed):
        self.sides = sides
        self.listed = listed

    async def play(self, writer, steps):
        """Run the steps until what happened is not the same any more. Gives the differences and how many steps it took."""
        names, streams = {}, ({}, {})
        situation = Situation()
        situation.writer = writer
        found, taken = [], []
        try:
            for step in steps:
                if step["do"] in ("frame", "subscribe", "close") and step["stream"] not in writer.streams:
                    continue
                if step["do"] == "watched" and step["watch"] not in streams[0]:
                    continue
                taken.append(step)
                await self.keep_time(writer, step)
                kind = situation.name(step)
                filled = fill(step, names)
                ours, theirs = await asyncio.gather(*(side.answer(filled, one) for side, one in zip(self.sides, streams)))
                if any(isinstance(one, str) and "DEADLINE_EXCEEDED" in one for one in (ours, theirs)):
                    raise Void
                if not same(ours, theirs):
                    back = {value: key for key, value in names.items()}
                    say = lambda text: re.sub("|".join(map(re.escape, back)) or "$^", lambda hit: back[hit.group(0)], text)
                    kind = f"{kind} => {say(brief(ours, theirs))} / {say(brief(theirs, ours))}"
                    found.append(Difference(kind, list(taken), ours, theirs))
                    if self.parts_ways(step, ours, theirs):
                        break
                elif isinstance(ours, str):
                    writer.learn(step, ours)
                elif step["do"] == "close":
                    writer.learn(step, ours)
        finally:
            for side, one in zip(self.sides, streams):
                await side.done(one)
        return found, len(taken)

    async def keep_time(self, writer, step):
        """No session may be about to end when a step is taken, unless the step waits for that."""
        ends = [known.started + SHORT_TTL_MS / 1_000 for known in writer.short_lived()]
        if any(end - time.monotonic() < 1 for end in ends):
            raise Void
        if step["do"] == "wait":
            until = max([time.monotonic() + step["ms"] / 1_000, *(end + 0.2 for end in ends)])
            await asyncio.sleep(until - time.monotonic())

    @staticmethod
    def parts_ways(step, ours, theirs):
        """Whether the two are in different states from here on."""
        done = lambda answer: isinstance(answer, str) and (answer.startswith(("ok", "delivered", "replays", "open")))
        over = lambda answer: isinstance(answer, str) and answer.startswith("end")
        if step["do"] in ("frame", "subscribe", "open"):
            return True
        if isinstance(ours, dict) and isinstance(theirs, dict):
            return ours.get("state") != theirs.get("state")
        return done(ours) != done(theirs) or over(ours) != over(theirs) or (done(ours) and ours != theirs)


class Comparison:
    """All scripts, and what they showed."""

    def __init__(self, sides, arguments):
        self.sides, self.arguments = sides, arguments
        self.listed = [(one["kind"], one) for one in tomllib.loads(LISTED.read_text())["difference"]] if LISTED.exists() else []
        self.counts, self.first, self.used = {}, {}, set()
        self.scripts = self.steps = self.void = self.left_out = 0

    def reason(self, kind):
        for pattern, one in self.listed:
            if re.search(pattern, kind):
                self.used.add(pattern)
                return one
        return None

    async def script(self, index):
        for _ in range(5):
            writer = Writer(self.arguments.seed, index, None)
            try:
                found, steps = await Run(self.sides, self.listed).play(writer, writer.steps())
                break
            except Void:
                self.void += 1
        else:
            self.left_out += 1
            return
        self.scripts += 1
        self.steps += steps
        for difference in found:
            self.counts[difference.kind] = self.counts.get(difference.kind, 0) + 1
            if difference.kind not in self.first or len(difference.steps) < len(self.first[difference.kind].steps):
                self.first[difference.kind] = difference

    async def shrink(self, difference):
        """The fewest steps that still show the same kind of difference."""

        async def shows(steps):
            try:
                writer = Writer(0, 0, None)
                found, _ = await Run(self.sides, self.listed).play(writer, iter(json.loads(json.dumps(steps))))
            except (Void, KeyError):
                return False
            return any(one.kind == difference.kind for one in found)

        steps = difference.steps
        at = len(steps) - 2
        while at >= 0:
            fewer = steps[:at] + steps[at + 1:]
            if await shows(fewer):
                steps = fewer
            at -= 1
        return steps

    async def all(self):
        queue = iter(range(self.arguments.first, self.arguments.first + self.arguments.scripts))

        async def work():
            for index in queue:
                await self.script(index)

        began = time.monotonic()
        await asyncio.gather(*(work() for _ in range(self.arguments.jobs)))
        return time.monotonic() - began

    async def report(self, seconds):
        """Say what was found. False if anything is not listed."""
        unlisted = [kind for kind in self.counts if self.reason(kind) is None]
        print(f"seed {self.arguments.seed}: {self.scripts} scripts, {self.steps} steps, {seconds:.0f} s; {self.void} runs were too slow, {self.left_out} scripts left out")
        listed = {}
        for kind, count in self.counts.items():
            if (one := self.reason(kind)) is not None:
                listed[one["kind"]] = listed.get(one["kind"], 0) + count
        print(f"{sum(listed.values())} differences of {len(listed)} listed kinds")
        if self.arguments.verbose:
            for pattern, count in sorted(listed.items(), key=lambda item: -item[1]):
                print(f"  {count:6} {pattern}")
        if self.scripts >= self.arguments.full:
            for pattern, _ in self.listed:
                if pattern not in self.used:
                    print(f"listed, but not seen: {pattern}")
        print(f"{len(unlisted)} kinds that are not listed")
        for kind in sorted(unlisted, key=lambda kind: -self.counts[kind]):
            print(f"\n{self.counts[kind]:6} {kind}")
            if re.search(self.arguments.show, kind):
                for step in await self.shrink(self.first[kind]):
                    print("         ", json.dumps({key: value for key, value in step.items() if key not in ("payload_of", "bound")}))
        return not unlisted and self.left_out <= self.scripts / 100


async def main(arguments):
    with tempfile.TemporaryDirectory() as data:
        processes = []
        try:
            ours, address = runtime.start_handover(arguments.handover, data)
            processes.append(ours)
            sides = [Side(address)]
            theirs, address = runtime.start_reference(arguments.reference)
            processes.append(theirs)
            sides.append(Side(address))
            comparison = Comparison(sides, arguments)
            seconds = await comparison.all()
            good = await comparison.report(seconds)
            for side in sides:
                await side.channel.close()
            return good
        finally:
            for process in processes:
                process.stop()


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--handover", required=True)
    options.add_argument("--reference", required=True)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--scripts", type=int, default=10_000)
    options.add_argument("--first", type=int, default=0, help="the first script of the seed, to run one again")
    options.add_argument("--jobs", type=int, default=24, help="scripts at the same time")
    options.add_argument("--full", type=int, default=5_000, help="from this many scripts on say which listed kinds were not seen")
    options.add_argument("--show", default="", help="show the shortest script of those kinds in which this is found")
    options.add_argument("--verbose", action="store_true")
    sys.exit(0 if asyncio.run(main(options.parse_args())) else 1)
