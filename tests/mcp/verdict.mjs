// What the results of the conformance suite amount to, given what we do not offer.

/** These say that we broke the protocol, whatever the scenario is about: no baseline excuses them. */
const NEVER_EXCUSED = new Set(["wire-schema-valid", "wire-schema-harness-error", "scenario-timeout"]);

/** A warning is an unmet SHOULD: we mean to meet those as well. */
const failed = (check) => check.status === "FAILURE" || check.status === "WARNING";

/**
 * Compare the checks of each scenario of each revision with the baseline, a list of
 * `{ reason, <revision>: ["scenario" or "scenario:check"] }`.
 *
 * Returns a row for each scenario, and a complaint for each check that failed without excuse and, if `whole`,
 * for each excuse that nothing needed.
 */
export function judge(found, baseline, whole) {
    const rows = [];
    const complaints = [];
    for (const [revision, scenarios] of found) {
        const excuses = new Map();
        for (const { reason, [revision]: names = [] } of baseline) {
            for (const name of names) excuses.set(name, reason);
        }
        const used = new Set();
        for (const [scenario, checks] of scenarios) {
            const row = { revision, scenario, passed: 0, failed: 0, notOffered: 0, reason: "" };
            for (const check of checks) {
                if (check.status === "SUCCESS") row.passed += 1;
                if (!failed(check)) continue;
                const excuse = [scenario, `${scenario}:${check.id}`].find((name) => excuses.has(name));
                if (excuse && !NEVER_EXCUSED.has(check.id)) {
                    used.add(excuse);
                    row.notOffered += 1;
                    row.reason = excuses.get(excuse);
                } else {
                    row.failed += 1;
                    complaints.push(complaint(revision, scenario, check));
                }
            }
            if (row.passed + row.failed + row.notOffered === 0) row.reason = "the suite judges nothing here";
            rows.push(row);
        }
        for (const name of excuses.keys()) {
            if (whole && !used.has(name)) {
                complaints.push(`${revision} ${name}: nothing failed here: take it out of baseline.json`);
            }
        }
    }
    return { rows, complaints };
}

function complaint(revision, scenario, check) {
    const why = (check.errorMessage ?? check.description).replaceAll("\n", "\n    ");
    return `${revision} ${scenario}: ${check.id} ${check.status}\n    ${why}`;
}

/** The rows as a table for people, with a total. */
export function table(rows) {
    const sum = (key) => rows.reduce((total, row) => total + row[key], 0);
    const total = { revision: "", scenario: `${rows.length} scenarios` };
    for (const key of ["passed", "failed", "notOffered"]) total[key] = sum(key);
    const width = Math.max(...[...rows, total].map((row) => row.scenario.length));
    const line = (revision, scenario, passed, failed, notOffered, reason = "") =>
        [
            revision.padEnd(10),
            scenario.padEnd(width),
            String(passed).padStart(6),
            String(failed).padStart(6),
            String(notOffered).padStart(11),
            reason,
        ]
            .join("  ")
            .trimEnd();
    const of = (row) => line(row.revision, row.scenario, row.passed, row.failed, row.notOffered, row.reason);
    return [line("revision", "scenario", "passed", "failed", "not offered"), ...rows.map(of), of(total)].join(
        "\n",
    );
}
