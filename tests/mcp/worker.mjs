// An agent's way to Handover: the MCP tools with which it registers and works, over stateless HTTP.

const REVISION = "2026-07-28";

/** How long a worker waits for the answer to a question before it gives the work up. */
const ANSWER_WITHIN_MS = 60_000;

/** How long one call may wait at the server. */
const WAIT_MS = 20_000;

/** What the server said no to. */
export class Refused extends Error {}

/** What a work function throws to end its work with an error of the protocol instead of a result. */
export class ProtocolError extends Error {
    constructor(code, message, data) {
        super(message);
        this.error = { code, message, ...(data === undefined ? {} : { data }) };
    }
}

/** The tools of the server, called as one agent. */
export class Handover {
    #url;
    #agent;
    #calls = 0;

    constructor(url, agent) {
        this.#url = url;
        this.#agent = agent;
    }

    /** Call a tool and return its structured content. */
    async call(name, args = {}) {
        const id = ++this.#calls;
        const meta = {
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientInfo": { name: this.#agent, version: "1.0.0" },
            "io.modelcontextprotocol/clientCapabilities": {},
        };
        const response = await fetch(this.#url, {
            method: "POST",
            headers: {
                authorization: `Bearer ${this.#agent}`,
                "content-type": "application/json",
                accept: "application/json, text/event-stream",
                "mcp-protocol-version": REVISION,
                "mcp-method": "tools/call",
                "mcp-name": name,
            },
            body: JSON.stringify({
                jsonrpc: "2.0",
                id,
                method: "tools/call",
                params: { name, arguments: args, _meta: meta },
            }),
        });
        const { result, error } = answer(await response.text(), response, id);
        if (error) throw new Refused(`${name}: ${error.message} (${error.code})`);
        if (result.isError) throw new Refused(`${name}: ${result.content?.[0]?.text ?? "no reason given"}`);
        return result.structuredContent ?? {};
    }
}

/** The JSON-RPC response in a body that is JSON or a stream of events. */
function answer(body, response, id) {
    const stream = response.headers.get("content-type")?.includes("text/event-stream");
    const lines = stream ? body.split(/\r?\n/).filter((line) => line.startsWith("data:")) : [body];
    for (const line of lines) {
        const text = stream ? line.slice("data:".length) : line;
        if (text.trim() === "") continue;
        let message;
        try {
            message = JSON.parse(text);
        } catch {
            break;
        }
        if (message.id === id && (message.result || message.error)) return message;
    }
    throw new Error(`expected a response to ${id}, found HTTP ${response.status}: ${body.slice(0, 200)}`);
}

/** One piece of work that the agent has accepted. */
export class Job {
    #handover;

    constructor(handover, work) {
        this.#handover = handover;
        this.id = work.task_id;
        this.skill = work.skill;
        this.arguments = work.arguments ?? {};
        this.capabilities = work.caller?.capabilities ?? {};
    }

    #call(tool, args) {
        return this.#handover.call(tool, { task_id: this.id, ...args });
    }

    /** Report progress, or lines for the caller's log. */
    update(args) {
        return this.#call("work_update", args);
    }

    /** A safe point: what the server says there. Throws if the work was taken away. */
    async #checkpoint(wait_ms) {
        return this.#mine(await this.#call("work_checkpoint", { wait_ms }));
    }

    #mine(told) {
        if (told.ended) throw new Refused(`the task has ended: ${told.status}`);
        return told;
    }

    /** Work for that long, or longer if the work is paused meanwhile. */
    async pass(ms) {
        for (let left = Math.ceil(ms); left > 0; ) {
            const began = Date.now();
            const { paused } = await this.#checkpoint(Math.min(left, WAIT_MS));
            if (!paused) left -= Date.now() - began;
        }
    }

    /** Ask, and return the answer to each question. */
    async ask(questions) {
        const until = Date.now() + ANSWER_WITHIN_MS;
        const answers = {};
        const take = ({ answers: direct, orders }) => {
            Object.assign(answers, direct);
            for (const order of orders ?? [])
                if (order.kind === "answer") Object.assign(answers, order.answers);
        };
        const open = () => Object.keys(questions).some((key) => !(key in answers));
        take(this.#mine(await this.#call("work_ask", { questions, wait_ms: WAIT_MS })));
        while (open()) {
            if (Date.now() > until) throw new Error(`nobody answered within ${ANSWER_WITHIN_MS} ms`);
            take(await this.#checkpoint(WAIT_MS));
        }
        return answers;
    }

    /** Do the work and report how it ended. */
    async run(work) {
        let result;
        try {
            result = await work(this);
        } catch (error) {
            if (error instanceof Refused) throw error;
            const protocol_error = error instanceof ProtocolError ? error.error : undefined;
            return this.#call("work_fail", {
                reason: error.message,
                ...(protocol_error && { protocol_error }),
            });
        }
        return this.#call("work_complete", { result });
    }
}
