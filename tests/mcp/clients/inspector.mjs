// The command line of the MCP Inspector. `--cli` makes one request and drives a task to its end, but cannot be asked
// anything; its sister `mcpdo` keeps a connection in the background, answers questions and cancels tasks.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { MODULES, PAUSE_ME, TOKEN, URLS, playAll, says, versionOf } from "./plays.mjs";

const CLIENTS = path.join(MODULES, "@modelcontextprotocol/inspector/clients");
const REACH = ["--transport", "http", "--header", `Authorization: Bearer ${TOKEN}`];
const RUN_WITHIN_MS = 50_000;

// Nothing of it goes to the home of whoever runs this; a socket's path must be short.
const home = await mkdtemp(path.join(tmpdir(), "inspector-"));
const env = {
    PATH: process.env.PATH,
    HOME: home,
    MCP_INSPECTOR_SECRET_STORE: "file",
    MCP_INSPECTOR_DAEMON_DIR: path.join(home, "daemon"),
    MCP_INSPECTOR_DAEMON_TOKEN: "of this run only",
};

/** Run one of its programs; give the JSON that it printed, and its exit code. */
function run(program, args) {
    const options = { env, cwd: home, timeout: RUN_WITHIN_MS };
    return new Promise((resolve, reject) => {
        const child = execFile(process.execPath, [path.join(CLIENTS, program), ...args], options, done);
        child.stdin.end();
        function done(error, stdout, stderr) {
            const printed = stdout.trim() || stderr.trim().split("\n").at(-1);
            try {
                resolve({ ...JSON.parse(printed), code: error?.code ?? 0 });
            } catch {
                reject(new Error(`expected JSON of ${args.join(" ")}, found ${printed} (${error?.message})`));
            }
        }
    });
}

const cli = (server, era, ...args) =>
    run("launcher/build/index.js", [
        ...["--cli", URLS[server], ...REACH, "--protocol-era", era, "-q", "--format", "json"],
        ...args,
    ]);
const call = (server, era, name, args = {}) =>
    cli(server, era, "--method", "tools/call", "--tool-name", name, "--tool-args-json", JSON.stringify(args));
const mcpdo = (...args) => run("mcpdo/build/mcp-bin.js", ["--connection", "it", ...args, "--format", "json"]);

/** What a tool returned. */
function returned({ result, error }) {
    if (!result) throw new Error(`expected a result, found ${error?.message ?? "nothing"}`);
    return result;
}

async function computes(server, era, seconds, label) {
    const called = await call(server, era, "slow_compute", { seconds, label });
    says(returned(called), `${label} took ${seconds} s`);
}

async function greets(server, era) {
    says(returned(await call(server, era, "greet", { name: "Ann" })), "Hello, Ann!");
}

/** Do something over a connection of `mcpdo`. */
async function connected(act) {
    try {
        const { protocolEra } = await mcpdo("connect", URLS.plain, ...REACH, "--era", "modern");
        assert.equal(protocolEra, "modern");
        await act();
    } finally {
        await mcpdo("disconnect", "it");
    }
}

/** Call for a file to be deleted, and answer the question about it. */
async function deletes(filename) {
    const args = JSON.stringify({ filename });
    const { elicitationPending } = await mcpdo("tools/call", "confirm_delete", "--tool-args-json", args);
    assert.equal(elicitationPending?.message, `fixture asks: Delete ${filename}?`);
    const { elicitationId } = elicitationPending;
    says(await mcpdo("elicitation/respond", elicitationId, "confirm:=true"), `deleted ${filename}`);
}

const inBothEras = (act) => async () => {
    for (const era of ["legacy", "modern"]) await act(era);
};

const plays = {
    plain: inBothEras(async (era) => {
        const { tools } = returned(await cli("plain", era, "--method", "tools/list"));
        assert.ok(tools.some(({ name }) => name === "greet"));
        await greets("plain", era);
    }),
    // As a task in the one, as a call that takes its time in the other.
    task: inBothEras((era) => computes("plain", era, 0.3, "sum")),
    elicitation: () => connected(() => deletes("old.txt")),
    cancel: () =>
        connected(async () => {
            const called = call("plain", "modern", "slow_compute", { seconds: 60 });
            const isOpen = ({ status }) => status === "working";
            let open;
            for (let tries = 0; !open && tries < 10; tries += 1) {
                const { structuredContent } = returned(await call("plain", "modern", "task_list"));
                open = structuredContent.tasks.find(isOpen);
            }
            assert.ok(open, "expected a task to cancel, found none");
            await mcpdo("tasks/cancel", "--task-id", open.task_id);
            const { error } = await called;
            assert.match(error?.message, /cancel/i);
        }),
    failure: async () => {
        const failed = await call("plain", "modern", "failing_job");
        assert.equal(returned(failed).isError, true);
        const broken = await call("plain", "modern", "protocol_error_job");
        assert.match(broken.error?.message, /the job broke down/);
    },
    paused: () => computes("plain", "modern", 3, PAUSE_ME),
    paused_asking: () => connected(() => deletes(PAUSE_ME)),
    strict_headers: async () => {
        await greets("strict", "modern");
        await computes("strict", "modern", 0.1, "sum");
    },
};

await playAll([await versionOf("@modelcontextprotocol/inspector")], plays, async () => {
    await run("mcpdo/build/mcp-bin.js", ["daemon", "stop", "--format", "json"]).catch(() => {});
    await rm(home, { recursive: true, force: true });
});
