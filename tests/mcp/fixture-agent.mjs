// An agent that has the skills which the conformance suite calls. It registers and works like any other agent.
//
//     node fixture-agent.mjs http://127.0.0.1:8420/mcp conformance-fixture

import { skills } from "./skills.mjs";
import { Handover, Job, Refused } from "./worker.mjs";

/** So many calls for work may fail in a row before the agent gives up. */
const FAILURES_MAX = 5;

const [url, agent] = process.argv.slice(2);
if (!url || !agent) {
    console.error("usage: fixture-agent.mjs URL AGENT");
    process.exit(2);
}
const handover = new Handover(url, agent);
let changes = 0;
let stopping = false;

/** Tell the directory what this agent can do. A change is told by the description: the names stay. */
function register() {
    const entries = all.map(({ work: _, ...skill }) =>
        skill.name === "test_trigger_tool_change" && changes > 0
            ? { ...skill, description: `${skill.description} (changed ${changes} times)` }
            : skill,
    );
    const description = "Has the skills that the MCP conformance suite calls";
    return handover.call("agent_register", { name: "Conformance fixture", description, skills: entries });
}

const all = skills(() => {
    changes += 1;
    return register();
});
const works = new Map(all.map((skill) => [skill.name, skill.work]));

async function run(work) {
    try {
        await new Job(handover, work).run(works.get(work.skill));
    } catch (error) {
        // A caller that cancels takes the work away: the server then refuses the rest.
        console.error(
            `${work.skill} ${work.task_id}: ${error instanceof Refused ? error.message : error.stack}`,
        );
    }
}

process.on("SIGTERM", async () => {
    stopping = true;
    await handover
        .call("agent_unregister")
        .catch((error) => console.error(`unregistering: ${error.message}`));
    process.exit(0);
});

await register();
console.log(JSON.stringify({ ready: true, skills: all.length }));
for (let failures = 0; !stopping && failures < FAILURES_MAX; ) {
    try {
        const { work } = await handover.call("work_next", { wait_ms: 30_000, accept: true, max: 100 });
        failures = 0;
        for (const each of work) void run(each);
    } catch (error) {
        failures += 1;
        console.error(`asking for work: ${error.message}`);
    }
}
if (!stopping) process.exit(1);
