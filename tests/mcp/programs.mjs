// The programs that a run is made of: they log to its directory, and none outlives it.

import { spawn } from "node:child_process";
import { createWriteStream } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";

const READY_WITHIN_MS = 30_000;

export class Programs {
    #out;
    #running = new Set();

    constructor(out) {
        this.#out = out;
    }

    /** Start a program with its standard error in OUT/NAME.log; `ended` gives its exit code. */
    start(name, command, args, environment) {
        const child = spawn(command, args, { env: environment, stdio: ["ignore", "pipe", "pipe"] });
        child.stderr.pipe(createWriteStream(this.log(name)));
        this.#running.add(child);
        const ended = new Promise((resolve) => {
            child.on("error", (error) => resolve(error.message));
            child.on("close", (code, signal) => resolve(code ?? signal));
        });
        ended.then(() => this.#running.delete(child));
        return { name, child, ended };
    }

    /** Where a program's standard error is. */
    log(name) {
        return path.join(this.#out, `${name}.log`);
    }

    /** Start a server on a data directory of its own, with these settings and no others. */
    async server(name, binary, settings, http = "127.0.0.1:0") {
        const data = path.join(this.#out, `${name}-data`);
        const args = ["serve", "--data", data, "--http", http, "--macp", "127.0.0.1:0", "--json"];
        const environment = Object.entries(process.env).filter(([key]) => !key.startsWith("HANDOVER_"));
        for (const [key, value] of Object.entries(settings)) environment.push([`HANDOVER_${key}`, value]);
        const server = this.start(name, binary, args, Object.fromEntries(environment));
        const ready = await this.#ready(server);
        return { server, url: `http://${ready.http}/mcp`, macp: ready.macp };
    }

    /** Start the fixture agent and wait until its skills are tools of the server. */
    async agent(name, url, agent) {
        const program = path.join(import.meta.dirname, "fixture-agent.mjs");
        const started = this.start(name, process.execPath, [program, url, agent]);
        await this.#ready(started);
        return started;
    }

    /** The line of JSON with which a program says that it is ready. */
    async #ready({ name, child, ended }) {
        const lines = createInterface({ input: child.stdout });
        const line = new Promise((resolve) => lines.once("line", resolve));
        const late = new Promise((resolve) => setTimeout(resolve, READY_WITHIN_MS, "no word of it").unref());
        const found = await Promise.race([line, late, ended.then((how) => `its end (${how})`)]);
        try {
            return JSON.parse(found);
        } catch {
            throw new Error(`${name}: expected it to be ready, found ${found}; see ${this.log(name)}`);
        }
    }

    /** Ask a program to stop, and see that it ends well. */
    async stop({ name, child, ended }) {
        child.kill("SIGTERM");
        const how = await ended;
        if (how !== 0) throw new Error(`${name}: expected it to end well, found ${how}; see ${this.log(name)}`);
    }

    /** End everything that still runs. */
    end() {
        for (const child of this.#running) child.kill("SIGKILL");
    }
}
