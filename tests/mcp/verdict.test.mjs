import assert from "node:assert/strict";
import { test } from "node:test";
import { judge, table } from "./verdict.mjs";

const REVISION = "2026-07-28";
const found = (scenario, ...checks) => new Map([[REVISION, new Map([[scenario, checks]])]]);
const check = (id, status) => ({ id, status, description: `${id} holds` });
const excuse = (...names) => [{ reason: "not ours", [REVISION]: names }];

test("a failed check is a complaint", () => {
    const { rows, complaints } = judge(
        found("ping", check("pong", "SUCCESS"), check("fast", "FAILURE")),
        [],
        true,
    );
    assert.deepEqual(complaints, [`${REVISION} ping: fast FAILURE\n    fast holds`]);
    assert.deepEqual([rows[0].passed, rows[0].failed, rows[0].notOffered], [1, 1, 0]);
});

test("a warning counts as failed", () => {
    assert.equal(judge(found("ping", check("fast", "WARNING")), [], true).complaints.length, 1);
});

test("what we do not offer is no complaint and says why", () => {
    const { rows, complaints } = judge(found("ping", check("pong", "FAILURE")), excuse("ping"), true);
    assert.deepEqual(complaints, []);
    assert.deepEqual([rows[0].failed, rows[0].notOffered, rows[0].reason], [0, 1, "not ours"]);
});

test("an excuse for one check excuses no other", () => {
    const checks = [check("pong", "FAILURE"), check("fast", "FAILURE")];
    const { rows } = judge(found("ping", ...checks), excuse("ping:pong"), true);
    assert.deepEqual([rows[0].failed, rows[0].notOffered], [1, 1]);
});

test("an excuse of another revision excuses nothing", () => {
    const baseline = [{ reason: "not ours", "2025-11-25": ["ping"] }];
    assert.equal(judge(found("ping", check("pong", "FAILURE")), baseline, true).complaints.length, 1);
});

test("nothing excuses a broken message", () => {
    const { complaints } = judge(found("ping", check("wire-schema-valid", "FAILURE")), excuse("ping"), false);
    assert.equal(complaints.length, 1);
});

test("an excuse that nothing needs is a complaint, unless only some scenarios ran", () => {
    const passing = found("ping", check("pong", "SUCCESS"));
    for (const name of ["ping", "ping:pong", "no-such-scenario"]) {
        assert.equal(judge(passing, excuse(name), true).complaints.length, 1, name);
        assert.equal(judge(passing, excuse(name), false).complaints.length, 0, name);
    }
});

test("the table ends with the sums", () => {
    const { rows } = judge(found("ping", check("pong", "SUCCESS"), check("fast", "FAILURE")), [], true);
    const lines = table(rows).split("\n");
    assert.match(lines[0], /scenario +passed +failed +not offered$/);
    assert.match(lines[1], /^2026-07-28 +ping +1 +1 +0$/);
    assert.match(lines[2], /1 scenarios +1 +1 +0$/);
});
