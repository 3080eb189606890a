// Lets clients of other people's making complete real tasks at the release binary, with the fixture agent as the worker
// and a bystander that pauses a task under their feet. Ends with a table.
//
//     node clients.mjs HANDOVER OUT PYTHON RMCP [CLIENT...]
//
// HANDOVER is the binary, OUT a directory for data and logs, PYTHON the interpreter that has the Python clients, RMCP
// the program in rmcp/.

import { mkdir, rm } from "node:fs/promises";
import path from "node:path";
import { createInterface } from "node:readline";
import { Bystander, PAUSE_ME } from "./bystander.mjs";
import { Programs } from "./programs.mjs";

const CLIENT_WITHIN_MS = 5 * 60_000;
const HERE = path.join(import.meta.dirname, "clients");
const [binary, out, python, rmcp, ...only] = process.argv.slice(2);
if (!rmcp) {
    console.error("usage: clients.mjs HANDOVER OUT PYTHON RMCP [CLIENT...]");
    process.exit(2);
}

const node = (program) => [
    process.execPath,
    "--import",
    path.join(import.meta.dirname, "packages.mjs"),
    path.join(HERE, program),
];
const TASKS = ["plain", "task", "elicitation", "cancel", "failure", "paused", "paused_asking", "strict_headers"];
const HANDSHAKE = ["plain", "progress", "elicitation", "handle", "paused"];
const IMPATIENT = ["plain", "slow"];

/** Each client: how to start it, what it must play, and whether it looks at its tasks and names them in the header. */
const CLIENTS = {
    fastmcp: { run: [python, path.join(HERE, "with_fastmcp.py")], plays: TASKS, polls: true, names: false },
    "ext-tasks": { run: node("ext-tasks.mjs"), plays: TASKS, polls: true, names: true },
    inspector: { run: node("inspector.mjs"), plays: TASKS, polls: true, names: true },
    rmcp: { run: [rmcp], plays: TASKS, polls: true, names: true },
    mcp: { run: [python, path.join(HERE, "with_mcp.py")], plays: HANDSHAKE, polls: false, names: false },
    // It starts servers of its own, because an issuer has to be there before they are.
    oauth: {
        run: [python, path.join(HERE, "with_oauth.py"), binary, path.join(out, "oauth-data")],
        plays: ["as_documented", "on_loopback", "other_audience"],
        polls: false,
        names: false,
    },
    handshake: { run: node("handshake.mjs"), plays: HANDSHAKE, polls: false, names: false },
    "openai-agents": {
        run: [python, path.join(HERE, "with_openai_agents.py")],
        plays: [...IMPATIENT, "gives_up"],
        polls: false,
        names: false,
    },
    agno: { run: [python, path.join(HERE, "with_agno.py")], plays: IMPATIENT, polls: false, names: false },
};

/** The servers: as it comes, one that lets calls wait long, strict about headers, and one that hardly waits. */
const SERVERS = {
    as_it_comes: {},
    plain: { MCP_WAIT_SECONDS: "45", MCP_WAIT_WITH_PROGRESS_SECONDS: "45" },
    strict: { MCP_STRICT_HEADERS: "true" },
    impatient: { MCP_WAIT_SECONDS: "1" },
};

const programs = new Programs(out);

/** Let a client play; return what went wrong, and a row for each play. */
async function play(name, targets) {
    const { run, plays, polls } = CLIENTS[name];
    const token = `${name}-client`;
    const bystanders = {};
    for (const [server, target] of Object.entries(targets)) {
        bystanders[server] = await Bystander.before(target, token, polls);
    }
    const urls = Object.entries(bystanders).map(([server, { url }]) => [server, url]);
    const [command, ...args] = run;
    const { child, ended } = programs.start(name, command, args, {
        ...process.env,
        MCP_URLS: JSON.stringify(Object.fromEntries(urls)),
        MCP_TOKEN: token,
        MCP_PAUSE_ME: PAUSE_ME,
    });
    const late = setTimeout(() => child.kill("SIGKILL"), CLIENT_WITHIN_MS);
    const told = [];
    for await (const line of createInterface({ input: child.stdout })) told.push(JSON.parse(line));
    const how = await ended;
    clearTimeout(late);

    const version = told.find(({ client }) => client)?.client ?? name;
    const rows = told.filter((each) => each.play).map((each) => ({ version, ...each }));
    const wrong = rows.filter(({ failure }) => failure).map((row) => `${name}: ${row.play}: ${row.failure}`);
    const missing = plays.filter((each) => !rows.some((row) => row.play === each));
    if (missing.length) wrong.push(`${name}: expected the plays ${missing.join(", ")}, found none`);
    if (how !== 0) wrong.push(`${name}: expected it to end well, found ${how}; see ${programs.log(name)}`);
    wrong.push(...(await judge(name, bystanders.plain)));
    for (const bystander of Object.values(bystanders)) bystander.close();
    return { rows, wrong };
}

/** What the bystander saw that should have been otherwise. */
async function judge(name, { asked, pauses }) {
    const { plays, names } = CLIENTS[name];
    const wrong = [];
    const due = plays.filter((play) => play.startsWith("paused")).length;
    if (pauses.length < due) wrong.push(`${name}: expected ${due} tasks to pause, found ${pauses.length}`);
    for (const pause of pauses) await pause.catch((error) => wrong.push(`${name}: paused: ${error.message}`));
    const onTasks = asked.filter(({ method }) => method?.startsWith("tasks/"));
    // The server bears with clients that leave the header out: as long as one does, this shows that it must.
    const otherwise = onTasks.find(({ named }) => named !== names);
    if (otherwise) {
        wrong.push(`${name}: expected Mcp-Name ${names ? "with" : "to be absent from"} ${otherwise.method}`);
    }
    return wrong;
}

function table(rows) {
    const width = Math.max(...rows.map(({ version }) => version.length));
    const line = ({ version, play, ms, failure }) =>
        `${version.padEnd(width)}  ${play.padEnd(14)}  ${String(ms).padStart(6)} ms  ${failure ? "FAILED" : "ok"}`;
    return rows.map(line).join("\n");
}

async function main() {
    await rm(out, { recursive: true, force: true });
    await mkdir(out, { recursive: true });
    const unknown = only.find((name) => !(name in CLIENTS));
    if (unknown) throw new Error(`expected one of ${Object.keys(CLIENTS).join(", ")}, found ${unknown}`);
    const started = [];
    const targets = {};
    for (const [name, settings] of Object.entries(SERVERS)) {
        // Clients look as often as they are told to: here that is often.
        const { server, url } = await programs.server(name, binary, { MCP_POLL_INTERVAL_MS: "50", ...settings });
        const agent = await programs.agent(`${name}-agent`, url, "fixture");
        targets[name] = url;
        started.push(agent, server);
    }
    const found = [];
    for (const name of only.length ? only : Object.keys(CLIENTS)) found.push(await play(name, targets));
    for (const program of started) await programs.stop(program);
    const wrong = found.flatMap((each) => each.wrong);
    for (const each of wrong) console.log(each);
    console.log(table(found.flatMap(({ rows }) => rows)));
    return wrong.length === 0;
}

const end = (code) => {
    programs.end();
    process.exit(code);
};
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => end(1));
try {
    end((await main()) ? 0 : 1);
} catch (error) {
    console.error(error.message);
    end(1);
}
