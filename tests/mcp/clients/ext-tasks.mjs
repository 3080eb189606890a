// The tasks package of the MCP project with the TypeScript SDK's client. The client cannot send the shapes of tasks
// itself: a host has to send them past it, which is done here over the client's own transport.

import assert from "node:assert/strict";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import {
    createApplicationInputHandler,
    createTaskSessionFromClient,
    resultFromTaskOutcome,
} from "@modelcontextprotocol/ext-tasks/client";
import { PAUSE_ME, TOKEN, URLS, playAll, says, versionOf } from "./plays.mjs";

const REVISION = "2026-07-28";
const INFO = { name: "ext-tasks-client", version: "1.0.0" };
const CAPABILITIES = { elicitation: { form: {} } };

/** Sends requests over a transport that a client uses as well, and takes their answers out before the client sees them. */
function dispatcher(transport) {
    const waiting = new Map();
    const toClient = transport.onmessage;
    transport.onmessage = (message, extra) => {
        const answer = waiting.get(message.id);
        if (!answer) return toClient(message, extra);
        waiting.delete(message.id);
        answer(message);
    };
    let sent = 0;
    return async (request, { signal } = {}) => {
        const id = `task-${++sent}`;
        const answered = new Promise((resolve) => waiting.set(id, resolve));
        await transport.send({ ...request, jsonrpc: "2.0", id }, { requestSignal: signal });
        const { result, error } = await answered;
        return error ? { kind: "error", error } : { kind: "result", result };
    };
}

/** Connect, do something with a task session, and close it. */
async function withSession(server, act, onInputRequest) {
    const requestInit = { headers: { authorization: `Bearer ${TOKEN}` } };
    const transport = new StreamableHTTPClientTransport(new URL(URLS[server]), { requestInit });
    const options = { capabilities: CAPABILITIES, versionNegotiation: { mode: { pin: REVISION } } };
    const client = new Client(INFO, options);
    await client.connect(transport);
    const session = createTaskSessionFromClient(client, {
        endpointId: server,
        rawDispatch: dispatcher(transport),
        v2RequestFraming: { protocolVersion: REVISION, clientInfo: INFO, clientCapabilities: CAPABILITIES },
        onInputRequest,
    });
    try {
        await act(session, client);
    } finally {
        await session.close();
        await client.close();
    }
}

/** Call a tool and wait for what it comes to. */
async function settle(session, name, args) {
    const execution = await session.callTool(name, args);
    const { outcome } = await execution.settle();
    return { kind: execution.kind, outcome };
}

const greets = async (session) => {
    const { kind, outcome } = await settle(session, "greet", { name: "Ann" });
    assert.equal(kind, "immediate");
    says(resultFromTaskOutcome(outcome), "Hello, Ann!");
};

const computes = async (session, seconds, label) => {
    const { kind, outcome } = await settle(session, "slow_compute", { seconds, label });
    assert.equal(kind, "task");
    says(resultFromTaskOutcome(outcome), `${label} took ${seconds} s`);
};

const deletes = async (session, filename) => {
    const { outcome } = await settle(session, "confirm_delete", { filename });
    says(resultFromTaskOutcome(outcome), `deleted ${filename}`);
};

const answer = createApplicationInputHandler({
    elicitation: ({ params }) => {
        assert.ok(["fixture asks: Delete old.txt?", `fixture asks: Delete ${PAUSE_ME}?`].includes(params.message), params.message);
        return { action: "accept", content: { confirm: true } };
    },
    sampling: () => assert.fail("expected no question for a model"),
    roots: () => assert.fail("expected no question for roots"),
});

await playAll([await versionOf("@modelcontextprotocol/ext-tasks"), await versionOf("@modelcontextprotocol/client")], {
    plain: () =>
        withSession("plain", async (session, client) => {
            const { tools } = await client.listTools();
            assert.ok(tools.some(({ name }) => name === "greet"));
            await greets(session);
        }),
    task: () => withSession("plain", (session) => computes(session, 0.3, "sum")),
    elicitation: () => withSession("plain", (session) => deletes(session, "old.txt"), answer),
    cancel: () =>
        withSession("plain", async (session) => {
            const execution = await session.callTool("slow_compute", { seconds: 60 });
            await execution.cancel();
            assert.equal((await execution.settle()).outcome.status, "cancelled");
        }),
    failure: () =>
        withSession("plain", async (session) => {
            const failed = await settle(session, "failing_job", {});
            assert.equal(resultFromTaskOutcome(failed.outcome).isError, true);
            const broken = await settle(session, "protocol_error_job", {});
            assert.equal(broken.outcome.status, "failed");
            assert.match(broken.outcome.error.message, /the job broke down/);
        }),
    paused: () => withSession("plain", (session) => computes(session, 3, PAUSE_ME)),
    paused_asking: () => withSession("plain", (session) => deletes(session, PAUSE_ME), answer),
    strict_headers: () =>
        withSession("strict", async (session) => {
            await greets(session);
            await computes(session, 0.1, "sum");
        }),
});
