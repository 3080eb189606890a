// A server with agents and people: agents speak MCP or Grid to it, people use its console in a browser.

import { createHash } from "node:crypto";
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { Handover, Job } from "../mcp/worker.mjs";

/** How long anything may take that a person waits for. */
export const WITHIN_MS = 15_000;

/** Who there is, and with which roles. The token of each is its name. */
const AGENTS = {
    planner: [], analyst: [], crawler: [], mailer: [], helper: [], lead: [], ann: [],
    ops: ["observer"], root: ["observer", "admin"],
};

/** What needs an approval: work for the mailer. */
const RULES = '[{ delegate = ["mailer"], by = ["lead"] }]';

export class Stage {
    #programs;
    #binary;
    #browser;
    #name;
    #out;
    #settings;

    /** With settings of its own the server has those and no others. */
    constructor(programs, binary, browser, name, out, settings) {
        this.#programs = programs;
        this.#binary = binary;
        this.#browser = browser;
        this.#name = name;
        this.#out = out;
        this.#settings = settings;
    }

    /** Where screenshots are kept. */
    get shots() {
        return path.join(this.#out, "screenshots");
    }

    /** Start the server, or start it again on the same data and at the same port. */
    async start() {
        const hash = (token) => createHash("sha256").update(token).digest("hex");
        const entries = Object.entries(AGENTS).map(([name, roles]) =>
            `[[token]]\nsha256 = "${hash(name)}"\nagent = "${name}"\nroles = ${JSON.stringify(roles)}\n`);
        const tokens = path.join(this.#out, "tokens.toml");
        await writeFile(tokens, entries.join("\n"));
        const settings = this.#settings ?? { IDENTITY_TOKENS: tokens, APPROVALS_RULES: RULES };
        const http = this.url ? new URL(this.url).host : "127.0.0.1:0";
        const { server, url, macp } = await this.#programs.server(this.#name, this.#binary, settings, http);
        this.server = server;
        this.macp = macp;
        this.url = new URL(url).origin;
    }

    /** Stop the server as an operator does. */
    stop() {
        return this.#programs.stop(this.server);
    }

    /** A program that finds the server as a user's programs do. It is ended with the run. */
    program(name, command, args) {
        const at = { HANDOVER_SERVER: this.url, HANDOVER_MACP: this.macp };
        return this.#programs.start(name, command, args, { ...process.env, ...at });
    }

    /** The command line of an agent, with its log. It is ended with the run. */
    command(agent, args) {
        const at = { HANDOVER_SERVER: this.url, HANDOVER_TOKEN: agent };
        const name = `${this.#name}-${agent}`;
        return { ...this.#programs.start(name, this.#binary, args, { ...process.env, ...at }), log: this.#programs.log(name) };
    }

    /** The MCP tools of an agent. */
    agent(name) {
        return new Handover(`${this.url}/mcp`, name);
    }

    /** An agent that is in the directory. */
    async worker(name, description, skills) {
        const agent = this.agent(name);
        await agent.call("agent_register", { name, description, skills });
        return agent;
    }

    /** The next work for an agent, taken. */
    async job(agent) {
        const until = Date.now() + WITHIN_MS;
        while (Date.now() < until) {
            const { work } = await agent.call("work_next", { accept: true, wait_ms: 2000, max: 1 });
            if (work?.length) return new Job(agent, work[0]);
        }
        throw new Error(`expected work, found none within ${WITHIN_MS} ms`);
    }

    /** A call of Grid. */
    async grid(name, method, params) {
        const response = await fetch(`${this.url}/grid/a2a/${name}`, {
            method: "POST",
            headers: { authorization: `Bearer ${name}`, "content-type": "application/json" },
            body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
        });
        const { result, error } = await response.json();
        if (error) throw new Error(`${method}: ${error.message}`);
        return result;
    }

    /** Everybody who has opened a browser. */
    people = [];

    /** A browser of somebody, signed in unless the name is empty. */
    async person(name, options = {}) {
        const context = await this.#browser.newContext({
            baseURL: this.url,
            viewport: { width: 1280, height: 800 },
            timezoneId: "Europe/Berlin",
            locale: "en-GB",
            ...options,
        });
        context.setDefaultTimeout(WITHIN_MS);
        const person = new Person(context);
        this.people.push(person);
        if (name) await person.signIn(name);
        return person;
    }
}

/** Somebody at a browser. Whatever its console complains of is kept. */
export class Person {
    /** What went wrong in pages of this browser. */
    complaints = [];
    /** Requests for the stream of events. */
    streams = 0;
    #expected = [];

    constructor(context) {
        this.context = context;
        context.on("request", (request) => {
            if (new URL(request.url()).pathname === "/live") this.streams += 1;
        });
        context.on("console", (message) => {
            if (message.type() === "error" || message.type() === "warning") this.#complain(message.text());
        });
        context.on("weberror", (error) => this.#complain(String(error.error())));
    }

    #complain(text) {
        const index = this.#expected.findIndex((known) => text.includes(known));
        if (index < 0) this.complaints.push(text);
        else this.#expected.splice(index, 1);
    }

    /** A refusal follows, of which the browser's console tells. */
    expectsRefusal(status) {
        this.#expected.push(`the server responded with a status of ${status}`);
    }

    async signIn(token) {
        this.page ??= await this.context.newPage();
        await this.page.goto("/sign-in");
        await this.page.locator("#token").fill(token);
        await this.page.getByRole("button", { name: "Sign in" }).click();
        await this.page.getByRole("heading", { name: "Waiting for you" }).waitFor();
    }

    /** Go somewhere, and wait until the page is live if it can be. */
    async open(target, page = this.page) {
        await page.goto(target);
        if (await page.locator("#live").count()) await live(page);
        return page;
    }

    close() {
        return this.context.close();
    }
}

/** The page says that it is live. */
export function live(page) {
    return page.locator("#live.on").waitFor();
}

/** A text is to be seen. */
export function sees(page, text) {
    return page.getByText(text).first().waitFor();
}

/** Something becomes true. */
export async function until(what, found) {
    const by = Date.now() + WITHIN_MS;
    for (;;) {
        if (await found()) return;
        if (Date.now() > by) throw new Error(`expected ${what} within ${WITHIN_MS} ms`);
        await new Promise((resolve) => setTimeout(resolve, 50));
    }
}

export function equal(found, expected, what) {
    const [a, b] = [JSON.stringify(found), JSON.stringify(expected)];
    if (a !== b) throw new Error(`${what}: expected ${b}, found ${a}`);
}
