// Where a client program finds the servers, and how it tells what it did: a line of JSON for each play.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import path from "node:path";

/** The servers: `plain`, `strict` (about headers) and `impatient` (answers a call after a second at the latest). */
export const URLS = JSON.parse(process.env.MCP_URLS);
export const TOKEN = process.env.MCP_TOKEN;
/** A call with this label, or about a file of this name, is paused by somebody else. */
export const PAUSE_ME = process.env.MCP_PAUSE_ME;
/** The packages. Node itself is one of them: node_modules/node-.../bin/node. */
export const MODULES = path.resolve(process.execPath, "../../..");
const PLAY_WITHIN_MS = 60_000;

const tell = (what) => console.log(JSON.stringify(what));

/** The name and version of an installed package. */
export async function versionOf(name) {
    const { version } = JSON.parse(await readFile(path.join(MODULES, name, "package.json"), "utf8"));
    return `${name.replace("@modelcontextprotocol/", "")} ${version}`;
}

/** The result of a tool is this text and no error. */
export function says(result, text) {
    assert.equal(result.content?.[0]?.text, text);
    assert.ok(!result.isError, `expected no error, found one: ${text}`);
}

/** Play everything, in order, clear up, and end the process. */
export async function playAll(versions, plays, clear = async () => {}) {
    tell({ client: versions.join(" with ") });
    let failed = false;
    for (const [play, act] of Object.entries(plays)) {
        const began = Date.now();
        const late = new Promise((_, reject) => {
            const tooLong = () => reject(new Error(`expected it to end within ${PLAY_WITHIN_MS} ms`));
            setTimeout(tooLong, PLAY_WITHIN_MS).unref();
        });
        let failure;
        try {
            await Promise.race([act(), late]);
        } catch (error) {
            console.error(`${play}:`, error);
            failure = error.message;
            failed = true;
        }
        tell({ play, ms: Date.now() - began, failure });
    }
    await clear();
    process.exit(failed ? 1 : 0);
}
