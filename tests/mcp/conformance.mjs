// Runs the official conformance suite against the release binary, with the fixture agent behind its tools,
// and compares what it found with baseline.json.
//
//     node conformance.mjs HANDOVER SUITE OUT [SCENARIO...]
//
// HANDOVER is the binary, SUITE the suite's program, OUT a directory for data, logs and results.

import { mkdir, readFile, readdir, rm } from "node:fs/promises";
import path from "node:path";
import { Programs } from "./programs.mjs";
import { judge, table } from "./verdict.mjs";

const REVISIONS = ["2026-07-28", "2025-11-25"];
/** All runs together, more than a scenario needs that waits for its own timeout. */
const WITHIN_MS = 15 * 60_000;
const HERE = import.meta.dirname;

const [binary, suite, out, ...only] = process.argv.slice(2);
if (!out) {
    console.error("usage: conformance.mjs HANDOVER SUITE OUT [SCENARIO...]");
    process.exit(2);
}
const programs = new Programs(out);

/** Run the suite once; return what it printed. Its exit code says nothing: it knows no baseline of ours. */
async function conformance(name, args) {
    const { child, ended } = programs.start(name, process.execPath, [suite, ...args]);
    let printed = "";
    child.stdout.setEncoding("utf8").on("data", (chunk) => (printed += chunk));
    await ended;
    return printed;
}

/** The checks of each scenario that the suite left in a directory. */
async function results(directory) {
    const found = new Map();
    for (const entry of await readdir(directory).catch(() => [])) {
        const scenario = entry.match(/^server-(.+)-\d{4}-\d{2}-\d{2}T[\d-]+Z$/)?.[1];
        const checks = await readFile(path.join(directory, entry, "checks.json"), "utf8").catch(
            () => undefined,
        );
        // A scenario that does not belong to the revision leaves none.
        if (scenario && checks) found.set(scenario, JSON.parse(checks));
    }
    return found;
}

/** All that a revision requires, as the suite itself lists it. */
async function everything(url, revision) {
    const directory = path.join(out, revision);
    const args = ["server", "--url", url, "--requirements", revision, "-o", directory];
    const printed = await conformance(`suite-${revision}`, args);
    const found = await results(directory);
    const planned = Number(printed.match(/\((\d+) scenarios\)/)?.[1]);
    if (found.size !== planned) {
        throw new Error(`expected results of ${planned} scenarios of ${revision}, found ${found.size}`);
    }
    return found;
}

/** The named scenarios, where the revision has them. */
async function some(url, revision, scenarios) {
    const directory = path.join(out, revision);
    for (const scenario of scenarios) {
        const tasks = scenario.startsWith("tasks-");
        if (tasks && revision !== REVISIONS[0]) continue;
        const at = tasks ? [] : ["--spec-version", revision];
        const args = ["server", "--url", url, "--scenario", scenario, ...at, "-o", directory];
        await conformance(`suite-${revision}-${scenario}`, args);
    }
    return results(directory);
}

/** Every scenario about tasks, whether or not the revision requires it, must be among the results. */
async function tasksCovered(found) {
    const listed = await conformance("list", ["list", "--server"]);
    const tasks = [...listed.matchAll(/^ +- (tasks-\S+)/gm)].map((match) => match[1]);
    const missing = tasks.filter((scenario) => !found.has(scenario));
    if (tasks.length === 0 || missing.length > 0) {
        throw new Error(`expected results of all scenarios about tasks, found none of ${missing.join(", ")}`);
    }
}

async function main() {
    const baseline = JSON.parse(await readFile(path.join(HERE, "baseline.json"), "utf8"));
    await rm(out, { recursive: true, force: true });
    await mkdir(out, { recursive: true });

    // The suite can send no token: it acts as the anonymous agent of the development identity.
    const settings = { IDENTITY_ANONYMOUS: "conformance-client" };
    const { server, url } = await programs.server("server", binary, settings);
    const agent = await programs.agent("agent", url, "conformance-fixture");

    const runs = REVISIONS.map((each) => (only.length ? some(url, each, only) : everything(url, each)));
    const found = await Promise.all(runs);
    if (only.length === 0) await tasksCovered(found[0]);
    await programs.stop(agent);
    await programs.stop(server);

    const byRevision = new Map(REVISIONS.map((revision, index) => [revision, found[index]]));
    const { rows, complaints } = judge(byRevision, baseline, only.length === 0);
    for (const complaint of complaints) console.log(complaint);
    console.log(table(rows));
    if (rows.length === 0) throw new Error(`expected a scenario of the suite, found ${only.join(", ")}`);
    return complaints.length === 0;
}

const end = (code) => {
    programs.end();
    process.exit(code);
};
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => end(1));
setTimeout(() => {
    console.error(`expected the suite to end within ${WITHIN_MS / 60_000} minutes; see ${out}`);
    end(1);
}, WITHIN_MS).unref();
try {
    end((await main()) ? 0 : 1);
} catch (error) {
    console.error(error.message);
    end(1);
}
