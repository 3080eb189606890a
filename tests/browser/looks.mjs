// How every page looks: on a desk and on a phone, light and dark. Nothing is wider than the screen, and nobody is kept out
// (axe). The screenshots are for people to look at.

import path from "node:path";
import { AxeBuilder } from "@axe-core/playwright";
import { sees } from "./stage.mjs";

const SCREENS = {
    desk: { viewport: { width: 1280, height: 800 } },
    phone: { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true },
};

const SKILLS = [
    {
        name: "trend",
        description: "finds the trend in a table of sales",
        inputSchema: {
            type: "object",
            properties: {
                quarter: { type: "string", enum: ["Q1", "Q2", "Q3", "Q4"], title: "Quarter" },
                months: { type: "integer", title: "Months to look back", description: "from 1 to 36" },
                refunds: { type: "boolean", title: "Include refunds" },
                notes: { type: "string", title: "Notes" },
            },
            required: ["quarter"],
        },
    },
    { name: "forecast", description: "says what comes next" },
];

/** A day at work: tasks in every state, on several protocols, some of which wait for planner. */
async function seed(stage) {
    const planner = await stage.worker("planner", "plans the quarter", []);
    const analyst = await stage.worker("analyst", "reads tables and finds out what they say", SKILLS);
    const crawler = await stage.worker("crawler", "fetches pages and keeps them", [{ name: "crawl", description: "fetches a site" }]);
    const mailer = await stage.worker("mailer", "sends mail to customers", []);
    await stage.worker("helper", "takes over at night", []);
    const give = async (agent, title, more = {}) =>
        (await planner.call("delegate_task", { title, instructions: `${title}, please.`, agent, ...more })).task_id;

    const main = await give("analyst", "Q4 sales analysis", {
        instructions: "Find the trend in the sales of the last quarter, and say what drives it.\nRefunds are in a second table.",
        input: { table: "sales_2026_q4", currency: "EUR" },
        ttl_ms: 3_600_000,
        silent_after_ms: 600_000,
        budget: { tasks: 10, numbers: { tokens: 200_000 } },
    });
    const job = await stage.job(analyst);
    await job.update({ message: "the table has 120,000 rows", progress: 0.1 });
    await job.update({ message: "refunds are in a second table", progress: 0.35, used: { tokens: 41_000 } });
    await planner.call("task_steer", { task_id: main, message: "focus on Q4, and leave the forecast for later" });
    await job.update({ message: "reading the second table", progress: 0.5 });
    const under = { title: "Fetch the orders", instructions: "all of Q4", agent: "crawler", parent_task_id: main };
    const child = (await analyst.call("delegate_task", under)).task_id;
    const fetching = await stage.job(crawler);
    await fetching.update({ message: "page 1 of 9", progress: 0.1 });
    await fetching.run(() => ({ content: [{ type: "text", text: "9 pages" }] }));
    await analyst.call("delegate_task", { ...under, title: "Fetch the refunds" });
    const refunds = await stage.job(crawler);
    await refunds.update({ message: "page 3 of 7", progress: 0.4 });
    await job.update({ message: "the trend is up; what about the refunds?", progress: 0.62 });
    await planner.call("task_steer", { task_id: main, message: "compare with last year" });

    const overview = await give("analyst", "Market overview");
    const asking = await stage.job(analyst);
    const schema = {
        type: "object",
        properties: {
            regions: { type: "string", enum: ["Europe", "Americas", "Asia"], title: "Which region first?" },
            refunds: { type: "boolean", title: "Include refunds?" },
        },
        required: ["regions"],
    };
    await analyst.call("work_ask", {
        task_id: asking.id,
        questions: {
            region: { message: "There are three regions. Which one should I begin with?", schema },
            buy: { message: "May I buy the report of 2025 for 49 EUR?", permission: true },
        },
        wait_ms: 0,
    });
    await give("mailer", "Send the invoices", { input: { to: "all customers", when: "Monday" } });
    const crawl = await give("crawler", "Crawl docs.example", { silent_after_ms: 50 });
    await stage.job(crawler);
    const paused = await give("analyst", "Look at the churn");
    const resting = await stage.job(analyst);
    await planner.call("task_pause", { task_id: paused });
    await resting.update({ message: "half of it" });
    const failed = await give("crawler", "Read the old intranet");
    await (await stage.job(crawler)).run(() => { throw new Error("it is switched off"); });
    const gone = await give("helper", "Water the plants");
    await planner.call("task_cancel", { task_id: gone });
    const talk = await stage.grid("ann", "task/send", { to: "planner", message: "When is the review of the forecast?" });
    await stage.grid("planner", "task/send", { to: "ann", message: "Please check the numbers of March" });
    const { task } = await stage.grid("planner", "task/send", { to: "ann", message: "Is the room booked?" });
    await stage.grid("ann", "message/send", { taskId: task.taskId, message: "Yes, until noon. Shall I book the afternoon as well?" });
    return { main, child, overview, crawl, failed, talk: talk.task.taskId };
}

function targets({ main, overview, failed, talk }) {
    return {
        planner: {
            waiting: "/", tasks: "/tasks", none: "/tasks?state=rejected", task: `/tasks/${main}`, waits: `/tasks/${overview}`,
            failed: `/tasks/${failed}`, talk: `/tasks/${talk}`, events: `/tasks/${main}/events`, replay: `/tasks/${main}/replay`,
            delegate: "/delegate", skill: "/delegate?agent=analyst&skill=trend", agents: "/agents", policies: "/policies",
            limits: "/limits", "no-audit": "/audit", health: "/health", "sign-ins": "/sign-ins", bulk: "/bulk?act=cancel&q=the", lost: "/tasks/nothing-here",
        },
        lead: { approval: "/" },
        root: { audit: "/audit", graphs: "/health" },
        ops: { observed: `/tasks/${main}` },
        helper: { empty: "/", "no-tasks": "/tasks?state=working" },
    };
}

async function look(page, name, at) {
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    await page.screenshot({ path: path.join(at, `${name}.png`), fullPage: true });
    const { violations } = await new AxeBuilder({ page }).setLegacyMode().analyze();
    const said = violations.map(({ id, help, nodes }) => `${name}: ${id}: ${help}: ${nodes[0].html.slice(0, 200)} ${nodes[0].failureSummary}`);
    if (wide > 0) said.push(`${name}: expected nothing wider than the screen, found ${wide} pixels`);
    return said;
}

async function all(stage, scheme) {
    const seeded = await seed(stage);
    const wrong = [];
    for (const [screen, size] of Object.entries(SCREENS)) {
        const shots = (name) => `${name}-${screen}-${scheme}`;
        const stranger = await stage.person("", { ...size, colorScheme: scheme });
        const page = await stranger.context.newPage();
        await page.goto("/sign-in");
        wrong.push(...(await look(page, shots("sign-in"), stage.shots)));
        for (const [name, pages] of Object.entries(targets(seeded))) {
            const person = await stage.person(name, { ...size, colorScheme: scheme });
            for (const [what, target] of Object.entries(pages)) {
                if (what === "lost") person.expectsRefusal(404);
                if (what === "no-audit") person.expectsRefusal(403);
                await person.open(target);
                if (what === "waiting") await sees(person.page, "has been silent for");
                wrong.push(...(await look(person.page, shots(what), stage.shots)));
            }
        }
    }
    if (wrong.length) throw new Error(wrong.join("\n"));
}

export const looks = {
    "pages in light": (stage) => all(stage, "light"),
    "pages in dark": (stage) => all(stage, "dark"),
};
