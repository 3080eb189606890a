// The TypeScript SDK's client as it comes: with the handshake of the older revisions, which know nothing of tasks. A
// call that takes too long for it comes back as a handle.

import assert from "node:assert/strict";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { PAUSE_ME, TOKEN, URLS, playAll, says, versionOf } from "./plays.mjs";

/** Connect, do something, and close. */
async function connected(server, act) {
    const requestInit = { headers: { authorization: `Bearer ${TOKEN}` } };
    const transport = new StreamableHTTPClientTransport(new URL(URLS[server]), { requestInit });
    const options = { capabilities: { elicitation: { form: {} } } };
    const client = new Client({ name: "handshake-client", version: "1.0.0" }, options);
    client.setRequestHandler("elicitation/create", ({ params }) => {
        assert.equal(params.message, "fixture asks: What is your name?");
        return { action: "accept", content: { name: "Ann" } };
    });
    await client.connect(transport);
    assert.equal(client.getProtocolEra(), "legacy");
    try {
        await act(client);
    } finally {
        await client.close();
    }
}

const call = (client, name, args = {}, options = undefined) =>
    client.callTool({ name, arguments: args }, options);

await playAll([await versionOf("@modelcontextprotocol/client")], {
    plain: () =>
        connected("plain", async (client) => {
            const { tools } = await client.listTools();
            assert.ok(tools.some(({ name }) => name === "greet"));
            says(await call(client, "greet", { name: "Ann" }), "Hello, Ann!");
        }),
    progress: () =>
        connected("plain", async (client) => {
            const seen = [];
            const onprogress = ({ progress, total }) => seen.push([progress, total]);
            says(await call(client, "test_tool_with_progress", {}, { onprogress }), "done");
            assert.deepEqual(seen.map(([progress]) => progress), [0, 50, 100]);
        }),
    elicitation: () =>
        connected("plain", async (client) => {
            says(await call(client, "test_input_required_result_elicitation"), "Hello, Ann!");
        }),
    handle: () =>
        connected("impatient", async (client) => {
            const { structuredContent } = await call(client, "slow_compute", { seconds: 2, label: "sum" });
            const { task_id } = structuredContent;
            let waited;
            for (let tries = 0; waited?.status !== "completed" && tries < 10; tries += 1) {
                const told = await call(client, "task_wait", { task_id, wait_ms: 5000 });
                waited = told.structuredContent;
            }
            says(waited.result, "sum took 2 s");
        }),
    paused: () =>
        connected("plain", async (client) => {
            const result = await call(client, "slow_compute", { seconds: 3, label: PAUSE_ME });
            says(result, `${PAUSE_ME} took 3 s`);
        }),
});
