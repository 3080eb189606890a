// The skills that the conformance suite expects to find as tools, and what is done when they are called.

import { ProtocolError } from "./worker.mjs";

/** One red pixel. */
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC";
/** A millisecond of silence. */
const WAV = "UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQgAAACAgICAgICAgA==";

const text = (text) => ({ type: "text", text });
const image = { type: "image", data: PNG, mimeType: "image/png" };
const audio = { type: "audio", data: WAV, mimeType: "audio/wav" };
const resource = (uri, mimeType, text) => ({ type: "resource", resource: { uri, mimeType, text } });
const says = (words) => ({ content: [text(words)] });
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const object = (properties, required = Object.keys(properties)) => ({
    type: "object",
    properties,
    ...(required.length ? { required } : {}),
});
const NOTHING = object({});
const STRING = { type: "string" };
const BOOLEAN = { type: "boolean" };

// Questions: a form to fill in, a message for the caller's model, and the caller's roots.
const form = (message, properties) => ({ message, schema: object(properties) });
const sampling = (words, maxTokens) => ({
    request: {
        method: "sampling/createMessage",
        params: { messages: [{ role: "user", content: text(words) }], maxTokens },
    },
});
const roots = { request: { method: "roots/list", params: {} } };

const filled = (answer) => answer.content ?? {};
const told = (answer) => `action=${answer.action}, content=${JSON.stringify(filled(answer))}`;
const spoken = (answer) => answer.content?.content?.text ?? "";
const rooted = (answer) => (answer.content?.roots ?? []).map((root) => root.uri).join(", ");

const NAME = form("What is your name?", { name: STRING });
const OK = form("Please confirm", { ok: BOOLEAN });

const DEFAULTS = {
    name: { type: "string", default: "John Doe" },
    age: { type: "integer", default: 30 },
    score: { type: "number", default: 95.5 },
    status: { type: "string", enum: ["active", "inactive", "pending"], default: "active" },
    verified: { type: "boolean", default: true },
};

const titled = (...titles) => titles.map((title, index) => ({ const: `value${index + 1}`, title }));
const OPTIONS = ["option1", "option2", "option3"];
const ENUMS = {
    untitledSingle: { type: "string", enum: OPTIONS },
    titledSingle: { type: "string", oneOf: titled("First Option", "Second Option", "Third Option") },
    legacyEnum: {
        type: "string",
        enum: ["opt1", "opt2", "opt3"],
        enumNames: ["Option One", "Option Two", "Option Three"],
    },
    untitledMulti: { type: "array", items: { type: "string", enum: OPTIONS } },
    titledMulti: { type: "array", items: { anyOf: titled("First Choice", "Second Choice", "Third Choice") } },
};

const CONTACT = {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    type: "object",
    $defs: {
        address: { $anchor: "addressDef", type: "object", properties: { street: STRING, city: STRING } },
    },
    properties: {
        name: STRING,
        address: { $ref: "#/$defs/address" },
        contactMethod: { type: "string", enum: ["phone", "email"] },
        phone: STRING,
        email: STRING,
    },
    allOf: [{ anyOf: [{ required: ["phone"] }, { required: ["email"] }] }],
    if: { properties: { contactMethod: { const: "phone" } }, required: ["contactMethod"] },
    then: { required: ["phone"] },
    else: { required: ["email"] },
    additionalProperties: false,
};

/** A skill that is answered on the spot. */
const atOnce = (name, description, work, more = {}) => ({
    name,
    description,
    inputSchema: NOTHING,
    answers: "at_once",
    work,
    ...more,
});

/** A skill that is always a task. */
const asTask = (name, description, work, more = {}) =>
    atOnce(name, description, work, { answers: "task", ...more });

const tasks = [
    {
        name: "slow_compute",
        description: "Compute for the given number of seconds",
        inputSchema: object({ seconds: { type: "number", minimum: 0 }, label: STRING }, ["seconds"]),
        answers: "either",
        work: async (job) => {
            const { seconds, label } = job.arguments;
            await job.pass(seconds * 1000);
            return says(`${label ?? "computation"} took ${seconds} s`);
        },
    },
    asTask("failing_job", "Work for a second and find that it cannot be done", async (job) => {
        await job.pass(1000);
        return { ...says("the job failed, as it always does"), isError: true };
    }),
    asTask("protocol_error_job", "End in an error of the protocol", async () => {
        throw new ProtocolError(-32603, "the job broke down, as it always does", {
            job: "protocol_error_job",
        });
    }),
    asTask(
        "confirm_delete",
        "Delete a file once the caller has confirmed it",
        async (job) => {
            const { filename } = job.arguments;
            const { confirm } = await job.ask({ confirm: form(`Delete ${filename}?`, { confirm: BOOLEAN }) });
            return says(filled(confirm).confirm ? `deleted ${filename}` : `kept ${filename}`);
        },
        { inputSchema: object({ filename: STRING }) },
    ),
    asTask("multi_input", "Ask two questions at the same time", async (job) => {
        const { name, confirm } = await job.ask({
            name: NAME,
            confirm: form("Shall we go on?", { confirm: BOOLEAN }),
        });
        return says(`${filled(name).name} said ${filled(confirm).confirm}`);
    }),
    asTask(
        "test_tool_with_task",
        "Ask for a name, then greet in a task",
        async (job) => {
            const { user_name } = await job.ask({ user_name: NAME });
            await job.update({ message: "writing the greeting" });
            // Work that is done by now need not have been a task.
            await job.pass(200);
            return says(`Hello, ${filled(user_name).name}!`);
        },
        { asks_first: true },
    ),
];

const answers = [
    atOnce("greet", "Greet somebody by name", async (job) => says(`Hello, ${job.arguments.name}!`), {
        inputSchema: object({ name: STRING }),
        annotations: { readOnlyHint: true },
    }),
    atOnce("test_simple_text", "Return a text", async () =>
        says("This is a simple text response for testing."),
    ),
    atOnce("test_image_content", "Return an image", async () => ({ content: [image] })),
    atOnce("test_audio_content", "Return a sound", async () => ({ content: [audio] })),
    atOnce("test_embedded_resource", "Return an embedded resource", async () => ({
        content: [
            resource("test://embedded-resource", "text/plain", "This is an embedded resource content."),
        ],
    })),
    atOnce("test_multiple_content_types", "Return a text, an image and a resource", async () => ({
        content: [
            text("Multiple content types test:"),
            image,
            resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
        ],
    })),
    atOnce("test_error_handling", "Return an error of the tool", async () => ({
        ...says("This tool intentionally returns an error for testing"),
        isError: true,
    })),
    atOnce("test_tool_with_progress", "Report progress three times", async (job) => {
        for (const progress of [0, 50, 100]) {
            await job.update({ progress, total: 100 });
            await pause(50);
        }
        return says("done");
    }),
    atOnce("test_tool_with_logging", "Log three lines", async (job) => {
        for (const data of ["Tool execution started", "Tool processing data", "Tool execution completed"]) {
            await job.update({ log: [{ level: "info", logger: "fixture", data }] });
            await pause(50);
        }
        return says("logged three lines");
    }),
    atOnce("test_logging_tool", "Log a line", async (job) => {
        await job.update({ log: [{ level: "info", data: "a line that nobody asked for" }] });
        return says("logged a line");
    }),
    atOnce(
        "test_missing_capability",
        "Do what needs a model of the caller's",
        async () => says("never reached"),
        {
            requires: ["sampling"],
        },
    ),
    atOnce("json_schema_2020_12_tool", "Take a contact", async (job) => says(JSON.stringify(job.arguments)), {
        inputSchema: CONTACT,
    }),
    atOnce(
        "test_header_param",
        "Take an argument that is also a header",
        async (job) => says(job.arguments.region),
        {
            inputSchema: object({ region: { ...STRING, "x-mcp-header": "Region" } }),
        },
    ),
    atOnce("test_reconnection", "Answer a caller that may come back for it", async () => says("answered")),
];

const ENTRY = { username: STRING, email: STRING };

const questions = [
    atOnce("test_streaming_elicitation", "Ask for a name", async (job) => {
        const { user_name } = await job.ask({ user_name: NAME });
        return says(told(user_name));
    }),
    atOnce(
        "test_elicitation",
        "Ask what the caller says to ask",
        async (job) =>
            says(
                `User response: ${told((await job.ask({ user: form(job.arguments.message, ENTRY) })).user)}`,
            ),
        { inputSchema: object({ message: STRING }) },
    ),
    atOnce("test_elicitation_sep1034_defaults", "Ask with a default for every type", async (job) => {
        const { user } = await job.ask({ user: form("Please look at the defaults", DEFAULTS) });
        return says(`Elicitation completed: ${told(user)}`);
    }),
    atOnce("test_elicitation_sep1330_enums", "Ask with every kind of choice", async (job) => {
        const { user } = await job.ask({ user: form("Please choose", ENUMS) });
        return says(`Elicitation completed: ${told(user)}`);
    }),
    atOnce(
        "test_sampling",
        "Ask the caller's model",
        async (job) => {
            const { model } = await job.ask({ model: sampling(job.arguments.prompt, 100) });
            return says(`LLM response: ${spoken(model)}`);
        },
        { inputSchema: object({ prompt: STRING }) },
    ),
    atOnce("test_input_required_result_elicitation", "Ask for a name and greet", async (job) => {
        const { user_name } = await job.ask({ user_name: NAME });
        return says(`Hello, ${filled(user_name).name}!`);
    }),
    atOnce("test_input_required_result_sampling", "Ask the caller's model for a capital", async (job) => {
        const { capital_question } = await job.ask({
            capital_question: sampling("What is the capital of France?", 100),
        });
        return says(spoken(capital_question));
    }),
    atOnce("test_input_required_result_list_roots", "Ask for the caller's roots", async (job) =>
        says(`roots: ${rooted((await job.ask({ client_roots: roots })).client_roots)}`),
    ),
    atOnce("test_input_required_result_request_state", "Ask with a state to bring back", async (job) => {
        const { confirm } = await job.ask({ confirm: OK });
        return says(filled(confirm).ok ? "state-ok" : "not confirmed");
    }),
    atOnce(
        "test_input_required_result_multiple_inputs",
        "Ask for three things of three kinds",
        async (job) => {
            const { user_name, greeting, client_roots } = await job.ask({
                user_name: NAME,
                greeting: sampling("Generate a greeting", 50),
                client_roots: roots,
            });
            return says(`${spoken(greeting)} ${filled(user_name).name}, at ${rooted(client_roots)}`);
        },
    ),
    atOnce("test_input_required_result_multi_round", "Ask twice, one after the other", async (job) => {
        const { step1 } = await job.ask({ step1: form("Step 1: What is your name?", { name: STRING }) });
        const { step2 } = await job.ask({
            step2: form("Step 2: What is your favorite color?", { color: STRING }),
        });
        return says(`${filled(step1).name} likes ${filled(step2).color}`);
    }),
    atOnce(
        "test_input_required_result_tampered_state",
        "Ask with a state that must not be changed",
        async (job) => {
            const { confirm } = await job.ask({ confirm: OK });
            return says(told(confirm));
        },
    ),
    atOnce(
        "test_input_required_result_capabilities",
        "Ask only for what the caller can give",
        async (job) => {
            const can = job.capabilities;
            const asked = await job.ask({
                ...(can.elicitation && { user_name: NAME }),
                ...(can.sampling && { greeting: sampling("Generate a greeting", 50) }),
            });
            return says(Object.keys(asked).join(", ") || "nothing to ask");
        },
    ),
];

/** Every skill, with `change` called when the list of tools has to change. */
export function skills(change) {
    const trigger = atOnce("test_trigger_tool_change", "Change the list of tools", async () => {
        await change();
        return says("the list of tools has changed");
    });
    return [...tasks, ...answers, ...questions, trigger];
}
