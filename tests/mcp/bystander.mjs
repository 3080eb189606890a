// What stands between a client and the server: it passes everything on as it is, remembers what was asked, and pauses
// a task under the client's feet.

import http from "node:http";

const REVISION = "2026-07-28";
const TASKS = "io.modelcontextprotocol/tasks";
/** A call with this label, or about a file of this name, is paused by the bystander. */
export const PAUSE_ME = "pause me";
/** How often the client must look at a paused task before it goes on. */
const LOOKS = 3;
/** What a client that does not look, but waits for its answer, has to wait longer. */
const HOLD_MS = 500;
const WITHIN_MS = 45_000;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Try again until there is something. */
async function until(what, look) {
    const late = Date.now() + WITHIN_MS;
    for (;;) {
        const found = await look();
        if (found) return found;
        if (Date.now() > late) throw new Error(`expected ${what} within ${WITHIN_MS} ms`);
        await pause(20);
    }
}

export class Bystander {
    #server;
    #target;
    #token;
    #polls;
    #calls = 0;
    /** What is waited for before the client may look at its tasks: so it meets a question only when it is paused. */
    #before = Promise.resolve();
    /** Every request of the client: its method, and whether it had the header Mcp-Name. */
    asked = [];
    /** What becomes of each task that is paused. */
    pauses = [];

    /** Stand before `target` for a client with this token, which looks at its tasks if it `polls`. */
    static async before(target, token, polls) {
        const bystander = new Bystander();
        bystander.#target = new URL(target);
        bystander.#token = token;
        bystander.#polls = polls;
        bystander.#server = http.createServer((request, response) => {
            bystander.#pass(request, response).catch((error) => {
                console.error(`passing on a request: ${error.message}`);
                response.destroy();
            });
        });
        await new Promise((resolve) => bystander.#server.listen(0, "127.0.0.1", resolve));
        bystander.url = `http://127.0.0.1:${bystander.#server.address().port}/mcp`;
        return bystander;
    }

    close() {
        this.#server.close();
        this.#server.closeAllConnections();
    }

    async #pass(request, response) {
        const chunks = [];
        for await (const chunk of request) chunks.push(chunk);
        const body = Buffer.concat(chunks);
        const { method, params } = body.length ? JSON.parse(body) : {};
        this.asked.push({ method, named: "mcp-name" in request.headers });
        if (method === "tools/call" && params.arguments?.label === PAUSE_ME) {
            this.#pauseNew(await this.#tasks(), "working");
        }
        if (method === "tools/call" && params.arguments?.filename === PAUSE_ME) {
            this.#before = this.#pauseNew(await this.#tasks(), "input_required");
        }
        if (method === "tasks/get") await this.#before;
        const { hostname, port, pathname } = this.#target;
        const { host: _, ...headers } = request.headers;
        const options = { hostname, port, path: pathname, method: request.method, headers };
        const onward = http.request(options, (answer) => {
            response.writeHead(answer.statusCode, answer.headers);
            answer.pipe(response);
        });
        // Either side may leave: then the other one is told.
        onward.on("error", () => response.destroy());
        response.on("close", () => onward.destroy());
        onward.end(body);
    }

    /** Pause the task that is not among these as soon as it has this status. Ends when it is paused, or cannot be. */
    #pauseNew(known, status) {
        const isNew = ({ task_id, assignee }) => assignee && known.every((task) => task.task_id !== task_id);
        const pausing = async () => {
            const task = await until("a task to pause", async () => (await this.#tasks()).find(isNew));
            await this.#until(task.task_id, status);
            await this.#ask("tasks/pause", { taskId: task.task_id });
            await this.#until(task.task_id, "paused");
            return task.task_id;
        };
        const paused = pausing();
        const resumed = paused.then((taskId) => this.#resume(taskId));
        resumed.catch(() => {}); // whoever reads `pauses` is told
        this.pauses.push(resumed);
        return paused.catch(() => {});
    }

    /** Let a task go on when the client has looked at it, and see it completed. */
    async #resume(taskId) {
        const seen = this.#looks();
        if (this.#polls) await until("the client to look again", () => this.#looks() >= seen + LOOKS);
        else await pause(HOLD_MS);
        const { status } = await this.#ask("tasks/get", { taskId });
        if (status !== "paused") throw new Error(`expected the task to stay paused, found it ${status}`);
        await this.#ask("tasks/resume", { taskId });
        await this.#until(taskId, "completed");
    }

    async #until(taskId, status) {
        const is = async () => (await this.#ask("tasks/get", { taskId })).status === status;
        await until(`the task to be ${status}`, is);
    }

    #looks() {
        return this.asked.filter(({ method }) => method === "tasks/get").length;
    }

    async #tasks() {
        const called = await this.#ask("tools/call", { name: "task_list", arguments: { max: 20 } });
        return called.structuredContent.tasks;
    }

    /** Ask the server something as another client of the same agent, in plain HTTP. */
    async #ask(method, params) {
        const meta = {
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientCapabilities": {
                elicitation: { form: {} },
                extensions: { [TASKS]: { pause: true } },
            },
        };
        const response = await fetch(this.#target, {
            method: "POST",
            headers: {
                authorization: `Bearer ${this.#token}`,
                "content-type": "application/json",
                accept: "application/json, text/event-stream",
                "mcp-protocol-version": REVISION,
                "mcp-method": method,
                "mcp-name": params.taskId ?? params.name,
            },
            body: JSON.stringify({ jsonrpc: "2.0", id: ++this.#calls, method, params: { ...params, _meta: meta } }),
        });
        const text = await response.text();
        const { result, error } = JSON.parse(text.startsWith("{") ? text : text.match(/^data: ?(\{.*)$/m)[1]);
        if (error) throw new Error(`${method}: ${error.message} (${error.code})`);
        return result;
    }
}
