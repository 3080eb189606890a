// Journeys of people, with real agents on the other side.

import { equal, live, sees, until } from "./stage.mjs";

const DIG = {
    name: "dig",
    description: "digs a hole",
    inputSchema: {
        type: "object",
        properties: {
            depth: { type: "integer", minimum: 1, maximum: 9, title: "How deep?" },
            where: { type: "string", enum: ["here", "there"] },
        },
        required: ["depth"],
    },
};

/** A result in words. */
const text = (said) => ({ content: [{ type: "text", text: said }] });

/** Have planner delegate something to an agent, over MCP. */
async function delegated(stage, agent, title, more = {}) {
    const asked = { title, instructions: `please ${title}`, agent, ...more };
    return (await stage.agent("planner").call("delegate_task", asked)).task_id;
}

export const journeys = {
    async delegate(stage) {
        const analyst = await stage.worker("analyst", "digs", [DIG]);
        const { page } = await stage.person("ann");
        await page.getByRole("link", { name: "Agents" }).click();
        await page.getByRole("link", { name: "dig", exact: true }).click();
        await page.getByLabel("Title", { exact: true }).fill("A hole");
        await page.getByLabel("Instructions").fill("behind the shed");
        await page.getByLabel("How deep?").fill("3");
        await page.getByLabel("where").selectOption("there");
        await page.getByRole("button", { name: "Delegate" }).click();
        await sees(page, "The task was handed out.");
        await page.locator("h1", { hasText: "A hole" }).waitFor();
        await live(page);
        await page.evaluate(() => { window.same = true; });
        const job = await stage.job(analyst);
        equal(job.arguments, { depth: 3, where: "there" }, "what the form says");
        await page.locator(".head .state.working").waitFor();
        await job.update({ message: "half way", progress: 0.5 });
        await page.locator("progress[value='50']").waitFor();
        await job.run(() => text("a hole"));
        await page.locator(".head .state.waiting").waitFor();
        await page.getByRole("region", { name: "Waiting for you" }).getByRole("button", { name: "Complete" }).click();
        await sees(page, "The outcome was bound.");
        await page.locator(".head .state.completed").waitFor();
    },

    async answer(stage) {
        const analyst = await stage.worker("analyst", "digs", [DIG]);
        const person = await stage.person("planner");
        const { page } = person;
        await live(page);
        await delegated(stage, "analyst", "Q4 sales analysis");
        const job = await stage.job(analyst);
        const schema = {
            type: "object",
            properties: {
                refunds: { type: "boolean", title: "Include refunds?" },
                months: { type: "integer", title: "How many months?", maximum: 12 },
                why: { type: "string", title: "Why?" },
            },
            required: ["refunds", "months"],
        };
        const asked = job.ask({ refunds: { message: "What about refunds?", schema } });
        asked.catch(() => {});
        await sees(page, "What about refunds?");
        await until("the count in the title", async () => (await page.title()).startsWith("(1) "));
        await page.getByLabel("Include refunds?").check();
        await page.getByLabel("How many months?").fill("3");
        await page.getByLabel("Why?").fill("because of Q4");
        await page.getByRole("button", { name: "Answer", exact: true }).click();
        await sees(page, "The answer was stored.");
        await sees(page, "Nothing waits for planner");
        const { refunds } = await asked;
        equal(JSON.parse(refunds.content?.text ?? JSON.stringify(refunds.content ?? refunds)),
            { months: 3, refunds: true, why: "because of Q4" }, "what the agent was told");
    },

    async "approve with changes"(stage) {
        const mailer = await stage.worker("mailer", "sends mail", []);
        const { page } = await stage.person("lead");
        await live(page);
        const input = { to: "all customers" };
        const id = await delegated(stage, "mailer", "Send the invoices", { input });
        await sees(page, "planner proposed this request");
        await page.getByText("Approve with changes, ask for changes, or reject").click();
        await page.getByLabel("instructions").fill("please send them on Monday");
        await page.getByLabel("input").fill('{"to": "one customer"}');
        await page.getByRole("button", { name: "Approve with these changes" }).click();
        await sees(page, "The decision was stored.");
        const job = await stage.job(mailer);
        equal(job.id, id, "the task");
        const { work } = await mailer.call("work_list");
        equal([work[0].instructions, work[0].arguments], ["please send them on Monday", { to: "one customer" }], "the work");
        await page.goto(`/tasks/${id}`);
        await sees(page, "approved with changes the proposal");
    },

    async "steer and see it delivered"(stage) {
        const analyst = await stage.worker("analyst", "digs", [DIG]);
        const id = await delegated(stage, "analyst", "Q4 sales analysis");
        const job = await stage.job(analyst);
        const person = await stage.person("planner");
        const page = await person.open(`/tasks/${id}`);
        await page.getByLabel("Steer, or say something").fill("focus on Q4");
        await page.getByRole("button", { name: "Steer" }).click();
        await sees(page, "The steer was stored");
        await sees(page, "stored, to be delivered at the next safe point");
        await live(page);
        const { orders } = await job.update({ message: "on it", progress: 0.2 });
        equal(orders.map(({ kind, message, text }) => [kind, message ?? text]), [["steer", "focus on Q4"]], "the orders");
        await page.getByText(/delivered, event \d+, /).waitFor();
        const note = await page.locator(".timeline .note", { hasText: "delivered, event" }).innerText();
        const clock = await page.locator(".timeline li", { hasText: "received the orders" }).locator("time").innerText();
        equal(note.endsWith(clock), true, `the time of the delivery (${note}, ${clock})`);
    },

    async "pause until the safe point"(stage) {
        const analyst = await stage.worker("analyst", "digs", [DIG]);
        const id = await delegated(stage, "analyst", "Crawl the docs");
        const job = await stage.job(analyst);
        const person = await stage.person("planner");
        const page = await person.open(`/tasks/${id}`);
        await page.getByRole("button", { name: "Pause" }).click();
        await sees(page, "asked, at the next safe point");
        await page.locator(".head .state.working").waitFor();
        await live(page);
        const { paused } = await job.update({ message: "ten pages" });
        equal(paused, true, "the agent is told");
        await page.locator(".head .state.paused").waitFor();
        await page.getByText(/paused, event \d+/).waitFor();
        await page.getByRole("button", { name: "Resume" }).click();
        await sees(page, "The task goes on.");
        await page.locator(".head .state.working").waitFor();
        await job.run(() => text("all of it"));
        await page.locator(".head .state.completed").waitFor();
    },

    async "a tree that grows and is worked on"(stage) {
        const [analyst, crawler] = [await stage.worker("analyst", "digs", [DIG]), await stage.worker("crawler", "crawls", [DIG])];
        const id = await delegated(stage, "analyst", "Q4 sales analysis");
        await stage.job(analyst);
        const person = await stage.person("planner");
        const page = await person.open(`/tasks/${id}`);
        await live(page);
        await analyst.call("delegate_task", { title: "Fetch the orders", instructions: "all", agent: "crawler", parent_task_id: id });
        const row = page.locator(".tree li", { hasText: "Fetch the orders" });
        await row.locator(".state.requested").waitFor();
        // Only the task below changes now.
        const fetching = await stage.job(crawler);
        await row.locator(".state.working").waitFor();
        await fetching.run(() => text("9 pages"));
        await row.locator(".state.completed").waitFor();
    },

    async "hand on"(stage) {
        await stage.worker("helper", "helps", [{ ...DIG, name: "help" }]);
        const analyst = await stage.worker("analyst", "digs", [DIG]);
        const asked = { title: "Long work", instructions: "all night", agents: ["analyst", "helper"] };
        const { task_id: id } = await stage.agent("planner").call("delegate_task", asked);
        await stage.job(analyst);
        const owner = await stage.person("analyst");
        const helper = await stage.person("helper");
        await live(helper.page);
        const page = await owner.open(`/tasks/${id}`);
        await page.getByText("Hand on…", { exact: true }).click();
        await page.getByLabel("To which agent").selectOption("helper");
        await page.getByLabel("Reason").and(page.locator("#hand-on-reason")).fill("the night is over");
        await page.getByRole("button", { name: "Offer it" }).click();
        await sees(page, "The handoff was offered");
        await sees(helper.page, "offers you the responsibility");
        await helper.page.getByRole("button", { name: "Accept" }).click();
        await sees(helper.page, "The answer to the offer was stored.");
        await owner.open("/");
        await page.getByRole("button", { name: "Complete", exact: true }).click();
        await sees(page, "The outcome was bound.");
        await helper.open(`/tasks/${id}`);
        await sees(helper.page, "took it over by handoff");
        await helper.page.locator(".head", { hasText: "→ helper" }).waitFor();
    },

    async "replay to the end"(stage) {
        const analyst = await stage.worker("analyst", "digs", [DIG]);
        const id = await delegated(stage, "analyst", "Q4 sales analysis");
        const job = await stage.job(analyst);
        await job.update({ message: "half", progress: 0.5 });
        await stage.agent("planner").call("task_steer", { task_id: id, message: "left" });
        await job.update({ message: "more", progress: 0.7 });
        await job.run(() => text("done"));
        const person = await stage.person("planner");
        const page = await person.open(`/tasks/${id}`);
        const outcome = await page.locator(".head .state").innerText();
        await page.getByRole("link", { name: "Replay" }).click();
        await page.locator("[data-replay]").waitFor();
        const at = () => page.locator("[data-replay] [name=at]").inputValue().then(Number);
        const last = await at();
        const goes = async (key, to) => {
            await page.keyboard.press(key);
            await until(`event ${to} after ${key}`, async () => new URL(page.url()).searchParams.get("at") === String(to));
            await page.locator("[data-replay]").waitFor();
        };
        await goes("Home", 1);
        await page.locator(".state.requested").first().waitFor();
        for (let event = 2; event <= last; event += 1) await goes("ArrowRight", event);
        equal(await page.locator(".head .state").innerText(), outcome, "the last frame and the live state");
        await goes("ArrowLeft", last - 1);
        await goes("End", last);
        for (const view of ["kernel", "MACP", "MCP", "Grid"]) await page.getByRole("heading", { name: view }).waitFor();
        await page.locator("[data-replay] [name=at]").fill("2");
        await until("the slider's event", async () => new URL(page.url()).searchParams.get("at") === "2");
    },

    async "bulk cancel"(stage) {
        await stage.worker("analyst", "digs", [DIG]);
        for (const title of ["old crawl 1", "old crawl 2", "old crawl 3", "new crawl"]) {
            await delegated(stage, "analyst", title);
        }
        const person = await stage.person("planner");
        const page = await person.open("/tasks");
        await page.getByLabel("Title, agent or id", { exact: true }).fill("old");
        await page.getByRole("button", { name: "Filter" }).click();
        await page.getByRole("link", { name: "cancel", exact: true }).click();
        await page.getByRole("heading", { name: "Cancel 3 tasks?" }).waitFor();
        await page.getByLabel("old crawl 2").uncheck();
        await page.getByLabel("Reason").fill("not needed");
        await page.getByLabel(/Yes, cancel/).check();
        await page.getByRole("button", { name: "Cancel" }).click();
        await sees(page, "Cancel: 2 of 2");
        const { tasks } = await stage.agent("planner").call("task_list", { details: true });
        const states = Object.fromEntries(tasks.map(({ title, state }) => [title, state]));
        equal([states["old crawl 1"], states["old crawl 2"], states["old crawl 3"], states["new crawl"]],
            ["cancelled", "requested", "cancelled", "requested"], "the states");
    },

    async "sign in and out"(stage) {
        const person = await stage.person("");
        const page = person.page = await person.context.newPage();
        await page.goto("/tasks?state=working");
        await page.getByRole("heading", { name: "Sign in" }).waitFor();
        person.expectsRefusal(401);
        await page.getByLabel("Token").fill("nobody's");
        await page.keyboard.press("Enter");
        await sees(page, "expected a token that this server knows");
        await page.getByLabel("Token").fill("ops");
        await page.keyboard.press("Enter");
        await page.getByRole("heading", { name: "Tasks" }).waitFor();
        equal(new URL(page.url()).search, "?state=working", "where one wanted to go");
        await sees(page, "(observer)");
        const [cookie] = await person.context.cookies();
        equal([cookie.httpOnly, cookie.sameSite], [true, "Lax"], "the cookie");
        // Another browser of the same agent ends this one's sign-in: its live page is out at once.
        await person.open("/");
        const other = await stage.person("ops");
        await other.page.goto("/sign-ins");
        person.expectsRefusal(401);
        const first = other.page.locator("tr", { hasNotText: "this one" }).getByRole("button", { name: "End" });
        await first.first().click();
        await page.getByRole("heading", { name: "Sign in" }).waitFor();
        await other.page.getByRole("button", { name: "Sign out" }).click();
        await other.page.getByRole("heading", { name: "Sign in" }).waitFor();
        await other.page.goBack();
        await other.page.getByRole("heading", { name: "Sign in" }).waitFor();
    },

    async "twelve tabs"(stage) {
        const analyst = await stage.worker("analyst", "digs", [DIG]);
        const id = await delegated(stage, "analyst", "Q4 sales analysis");
        const job = await stage.job(analyst);
        const person = await stage.person("planner");
        const tabs = [await person.open("/")];
        const before = person.streams;
        while (tabs.length < 12) tabs.push(await person.context.newPage());
        for (const [index, tab] of tabs.entries()) if (index) await tab.goto(index % 2 ? `/tasks/${id}` : "/");
        for (const tab of tabs) await live(tab);
        await job.update({ message: "a quarter", progress: 0.25 });
        for (const tab of tabs.filter((_, index) => index % 2)) await tab.locator("progress[value='25']").waitFor();
        const asked = job.ask({ q: { message: "Include refunds?" } });
        asked.catch(() => {});
        for (const tab of tabs) await tab.getByText("Include refunds?").first().waitFor();
        equal(person.streams, before, "streams beside the first tab's");
        // Whoever listens for all goes away: another takes over.
        await tabs[0].close();
        await until("another stream", async () => person.streams > before);
        for (const tab of tabs.slice(1)) await live(tab);
        await stage.agent("planner").call("task_answer", { task_id: id, answers: { q: { action: "accept", content: { answer: "yes" } } } });
        await asked;
        await job.update({ message: "half", progress: 0.5 });
        for (const tab of tabs.slice(1).filter((_, index) => index % 2 === 0)) {
            await tab.locator("progress[value='50']").waitFor();
        }
        equal(person.streams, before + 1, "streams");
        person.page = tabs[1];
    },
};
