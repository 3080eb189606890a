// What survives: what was typed, the focus and open panels, whatever happens meanwhile; and pages that lose the server.

import { equal, live, sees, until } from "./stage.mjs";

/** Have planner delegate something to an agent, and have it taken. */
async function begun(stage, agent, title) {
    const worker = stage.agent(agent);
    const asked = { title, instructions: title, agent, queue: true };
    const { task_id: id } = await stage.agent("planner").call("delegate_task", asked);
    return { id, job: await stage.job(worker) };
}

const QUESTION = {
    message: "What about refunds?",
    schema: {
        type: "object",
        properties: {
            months: { type: "integer", title: "How many months?", maximum: 12 },
            region: { type: "string", enum: ["Europe", "Asia"], title: "Region" },
            refunds: { type: "boolean", title: "Include refunds?" },
            why: { type: "string", title: "Why?" },
        },
        required: ["months"],
    },
};

/** Somebody whose pages go by a clock that the play can set forward. */
async function signedIn(person) {
    await person.context.clock.install();
    await person.signIn("planner");
    await live(person.page);
    return person;
}

/** What a form of the question says. */
async function said(page) {
    return [
        await page.getByLabel("How many months?").inputValue(),
        await page.getByLabel("Region").evaluate((field) => field.selectedOptions[0].textContent),
        await page.getByLabel("Include refunds?").isChecked(),
        await page.getByLabel("Why?").inputValue(),
    ];
}

async function type(page, months) {
    await page.getByLabel("How many months?").fill(months);
    await page.getByLabel("Region").selectOption("Asia");
    await page.getByLabel("Include refunds?").check();
    await page.getByLabel("Why?").fill("because of Q4\nand Q3");
}

/** An answer that does not fit comes back with what was typed and the reason; mended, it counts. */
async function refused(stage, script) {
    const { id, job } = await begun(stage, "analyst", "Q4 sales analysis");
    const asked = job.ask({ q: QUESTION });
    asked.catch(() => {});
    await until("the question", async () =>
        (await stage.agent("planner").call("task_status", { task_id: id })).status === "input_required");
    for (const target of ["/", `/tasks/${id}`]) {
        const person = await stage.person("planner", { javaScriptEnabled: script });
        const { page } = person;
        await page.goto(target);
        await type(page, "13");
        person.expectsRefusal(400);
        await page.getByRole("button", { name: "Answer", exact: true }).click();
        await page.getByRole("alert").getByText("the answer to question q").waitFor();
        equal(await said(page), ["13", "Asia", true, "because of Q4\nand Q3"], "what was typed");
        if (script) {
            equal(new URL(page.url()).pathname, target, "where the page lives");
            // A change of the task does not take it away either.
            await live(page);
            await stage.agent("planner").call("task_steer", { task_id: id, message: "hurry" });
            if (target !== "/") await page.locator(".timeline", { hasText: "hurry" }).waitFor();
            equal(await said(page), ["13", "Asia", true, "because of Q4\nand Q3"], "what was typed, after a change");
            // The form itself is as it was: nothing new is said to wait.
            equal(await page.getByRole("button", { name: "Show what has changed" }).count(), 0, "what is said to be new");
        }
        if (target !== "/") {
            await page.getByLabel("How many months?").fill("12");
            await page.getByRole("button", { name: "Answer", exact: true }).click();
            await sees(page, "The answer was stored.");
        }
    }
    await asked;
}

export const survivals = {
    "a refused answer": (stage) => refused(stage, true),

    "a refused answer without the script": (stage) => refused(stage, false),

    async "a refused decision and a refused task"(stage) {
        const person = await stage.person("lead");
        const { page } = person;
        await live(page);
        await stage.agent("planner").call("delegate_task", { title: "Send", instructions: "all", agent: "mailer", queue: true });
        await page.getByText("Approve with changes, ask for changes, or reject").click();
        await page.getByLabel("instructions").fill("only a few");
        person.expectsRefusal(400);
        await page.getByRole("button", { name: "Reject" }).click();
        await page.getByRole("alert").waitFor();
        equal(await page.getByLabel("instructions").inputValue(), "only a few", "what was typed");
        await page.getByLabel("What should change, or why not").fill("too many");
        await page.getByRole("button", { name: "Reject" }).click();
        await sees(page, "The decision was stored.");
        await page.goto("/delegate");
        await page.getByLabel("Agent", { exact: true }).fill("nobody-knows");
        await page.getByLabel("Title", { exact: true }).fill("A title");
        await page.getByLabel("Instructions").fill("two\nlines");
        await page.getByText("Bounds:").click();
        await page.getByLabel("Time to live in minutes").fill("7");
        person.expectsRefusal(404);
        await page.getByRole("button", { name: "Delegate" }).click();
        await page.getByRole("alert").waitFor();
        const typed = ["Agent", "Title", "Instructions", "Time to live in minutes"];
        const found = await Promise.all(typed.map((name) => page.getByLabel(name, { exact: true }).inputValue()));
        equal(found, ["nobody-knows", "A title", "two\nlines", "7"], "what was typed");
    },

    async "what is typed while much happens"(stage) {
        const { id, job } = await begun(stage, "analyst", "Q4 sales analysis");
        const other = await begun(stage, "crawler", "Crawl the docs");
        const asked = job.ask({ q: QUESTION });
        asked.catch(() => {});
        const person = await stage.person("planner");
        const { page } = person;
        await sees(page, "What about refunds?");
        await type(page, "3");
        await page.getByLabel("Why?").focus();
        // Something else comes to wait: it is announced and does not push anything away.
        const also = other.job.ask({ also: { message: "And the images?" } });
        also.catch(() => {});
        await page.getByRole("status").getByRole("button", { name: "1 new" }).waitFor();
        await until("the count in the title", async () => (await page.title()).startsWith("(2) "));
        equal(await said(page), ["3", "Asia", true, "because of Q4\nand Q3"], "what was typed");
        equal(await page.evaluate(() => document.activeElement.name), "f.why", "the focus");
        // Whoever wants to see it loses nothing either.
        await page.getByRole("button", { name: "1 new" }).click();
        await sees(page, "And the images?");
        equal(await said(page), ["3", "Asia", true, "because of Q4\nand Q3"], "what was typed, after a click on what is new");
        await page.getByRole("button", { name: "Answer", exact: true }).first().click();
        await sees(page, "The answer was stored.");
        await asked;
        // On a task's page: a half-written steer, its focus and an open panel stay while the timeline grows.
        await person.open(`/tasks/${id}`);
        await page.getByText("Cancel…").click();
        await page.getByLabel("Steer, or say something").fill("half a sen");
        await job.update({ message: "on it", progress: 0.3 });
        await page.locator("progress[value='30']").waitFor();
        await page.locator(".timeline", { hasText: "on it" }).waitFor();
        equal(await page.getByLabel("Steer, or say something").inputValue(), "half a sen", "the steer");
        equal(await page.evaluate(() => document.activeElement.id), "steer", "the focus");
        equal(await page.locator("#end").getAttribute("open"), "", "the panel");
        await page.getByLabel("Steer, or say something").fill("");
        // The button has no id: it is found by what it does. The panel that it is in changes when a part is delegated.
        await page.locator("#end").getByRole("button", { name: "Cancel the task" }).focus();
        const part = { title: "a part", instructions: "dig", agent: "helper", queue: true, parent_task_id: id };
        await stage.agent("analyst").call("delegate_task", part);
        await page.locator("#end", { hasText: "and 1 under it" }).waitFor({ state: "attached" });
        equal(await page.evaluate(() => document.activeElement.textContent), "Cancel the task", "the focus on a button");
        await page.getByText("Asked for").click();
        await job.update({ message: "still on it", progress: 0.4 });
        await page.locator("progress[value='40']").waitFor();
        equal(await page.locator("#end").getAttribute("open"), "", "the panel of a part that was put in place");
    },

    async "Enter decides nothing, and no click drops what was typed"(stage) {
        const lead = await stage.person("lead");
        const { page } = lead;
        await live(page);
        const asked = { title: "Send", instructions: "all", agent: "mailer", queue: true };
        const { task_id: id } = await stage.agent("planner").call("delegate_task", asked);
        await sees(page, "planner proposed this request");
        await page.getByText("Approve with changes, ask for changes, or reject").click();
        await page.getByLabel("title", { exact: true }).fill("Send a few");
        await page.getByLabel("title", { exact: true }).press("Enter");
        const state = async () => (await stage.agent("planner").call("task_status", { task_id: id })).approval?.state;
        equal(await state(), "waiting", "the approval, after Enter in a field");
        lead.expectsRefusal(422);
        await page.getByRole("button", { name: "Approve", exact: true }).click();
        await page.getByRole("alert").getByText("the form has changes").waitFor();
        equal([await state(), await page.getByLabel("title", { exact: true }).inputValue()], ["waiting", "Send a few"], "after a click on Approve");
        await page.getByRole("button", { name: "Approve with these changes" }).click();
        await sees(page, "The decision was stored.");

        const analyst = await stage.worker("analyst", "digs", []);
        const ann = await stage.person("ann");
        await ann.open("/delegate?agent=analyst");
        await ann.page.getByLabel("Title", { exact: true }).fill("A hole");
        await ann.page.getByRole("button", { name: "Delegate" }).click();
        const job = await stage.job(analyst);
        await job.run(() => ({ content: [{ type: "text", text: "no hole" }] }));
        await ann.open("/");
        await ann.page.getByLabel("Reason").fill("there is no hole");
        await ann.page.getByLabel("Reason").press("Enter");
        await ann.page.getByRole("button", { name: "Bind as failed" }).click();
        await sees(ann.page, "The outcome was bound.");
        await ann.open(`/tasks/${job.id}`);
        await ann.page.locator(".head .state.rejected").waitFor();
    },

    async "a sign-in that ends while somebody types"(stage) {
        const { id } = await begun(stage, "analyst", "Q4 sales analysis");
        const person = await stage.person("planner");
        const page = await person.open(`/tasks/${id}`);
        await page.getByLabel("Steer, or say something").fill("half a sen");
        const idle = await person.open("/tasks", await person.context.newPage());
        const other = await stage.person("planner");
        await other.page.goto("/sign-ins");
        const first = other.page.locator("tr", { hasNotText: "this one" }).getByRole("button", { name: "End" });
        await first.first().click();
        await page.locator("#live", { hasText: "signed out" }).waitFor();
        equal(await page.getByLabel("Steer, or say something").inputValue(), "half a sen", "what was typed");
        await idle.getByRole("heading", { name: "Sign in" }).waitFor();
        // Somebody else signs in there: what is typed stays, and is not sent as that agent.
        await idle.locator("#token").fill("ops");
        await idle.getByRole("button", { name: "Sign in" }).click();
        await idle.getByRole("heading", { name: "Tasks" }).waitFor();
        await page.locator("#live", { hasText: "another agent" }).waitFor();
        await page.getByRole("button", { name: "Steer" }).click();
        await sees(page, "What you have typed is not sent");
        equal(await page.getByLabel("Steer, or say something").inputValue(), "half a sen", "what was typed, after a click");
        person.complaints = person.complaints.filter((text) => !text.includes("status of 401"));
    },

    async "a page of an agent after another has signed in"(stage) {
        const person = await stage.person("planner");
        const { page } = person;
        await live(page);
        const second = await person.open("/tasks", await person.context.newPage());
        await second.goto("/sign-in");
        await second.locator("#token").fill("ann");
        await second.getByRole("button", { name: "Sign in" }).click();
        await sees(second, "Nothing waits for ann");
        await sees(page, "Nothing waits for ann");
        person.complaints = person.complaints.filter((text) => !text.includes("status of 401"));
    },

    async "who is told while another task is open"(stage) {
        const [one, other] = [await begun(stage, "analyst", "Q4 sales"), await begun(stage, "crawler", "Crawl the docs")];
        const person = await stage.person("");
        await person.context.grantPermissions(["notifications"]);
        // A browser shows its notifications where no test can look: they are made as ever, and noted.
        await person.context.addInitScript(() => {
            const Real = window.Notification;
            window.told = [];
            window.Notification = class {
                static get permission() { return Real.permission; }
                static requestPermission() { return Real.requestPermission(); }
                constructor(title, { body }) {
                    window.told.push(body);
                    if (window.phone) throw new TypeError("Illegal constructor");
                }
            };
            Object.defineProperty(document, "hidden", { get: () => window.away === true });
        });
        await person.signIn("planner");
        await person.page.getByRole("button", { name: "Notify me: off" }).click();
        await person.page.getByRole("button", { name: "Notify me: on" }).waitFor();
        const page = await person.open(`/tasks/${one.id}`);
        await page.evaluate(() => { window.away = true; });
        const asks = (job, key) => job.ask({ [key]: { message: "Which?" } }).catch(() => {});
        asks(other.job, "a");
        await until("the count in the title", async () => (await page.title()) === "(1) Q4 sales · Handover");
        equal(await page.locator("#waiting-count").innerText(), "1", "the count beside the title");
        await until("a notification", () => page.evaluate(() => window.told.join() === "1 waiting for you"));
        // Some browsers throw: the page goes on.
        await page.evaluate(() => { window.phone = true; });
        asks(one.job, "b");
        await until("the next count", async () => (await page.title()) === "(2) Q4 sales · Handover");
        await page.locator(".timeline", { hasText: "asked" }).waitFor();
        await until("another notification", () => page.evaluate(() => window.told.length === 2));
    },

    async "nothing jumps under a reader"(stage) {
        const { id, job } = await begun(stage, "analyst", "Long talk");
        for (let number = 0; number < 60; number += 1) await job.update({ message: `step ${number}` });
        const person = await stage.person("planner");
        const page = await person.open(`/tasks/${id}`);
        await page.evaluate(() => scrollTo(0, 900));
        const place = () => page.locator("#e30").evaluate((row) => Math.round(row.getBoundingClientRect().top));
        const before = await place();
        await job.update({ message: "one more" });
        await job.update({ message: "and another" });
        await page.getByRole("button", { name: "2 new" }).waitFor();
        equal(await page.locator(".timeline", { hasText: "and another" }).count(), 0, "rows that came meanwhile");
        equal(Math.abs(await place() - before) <= 60, true, "where the reader was");
        await page.getByRole("button", { name: "2 new" }).click();
        await page.locator(".timeline", { hasText: "and another" }).waitFor();
        await page.keyboard.press("/");
        equal(await page.evaluate(() => document.activeElement.id), "find", "where the slash leads");
    },

    async "a server that goes away"(stage) {
        const { id, job } = await begun(stage, "analyst", "Q4 sales analysis");
        const person = await stage.person("planner");
        const page = await person.open(`/tasks/${id}`);
        await stage.stop();
        await page.locator("#live", { hasText: "reconnecting" }).waitFor();
        await page.locator("#live", { hasText: /^since \d\d:\d\d$/ }).waitFor();
        await stage.start();
        // What happens before the page is back is not missed.
        await job.update({ message: "I was here all the time", progress: 0.8 });
        await page.locator(".timeline", { hasText: "I was here all the time" }).waitFor();
        await live(page);
        person.complaints = person.complaints.filter((text) => !/ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED/.test(text));
    },

    async "a connection that has died without a word"(stage) {
        const person = await stage.person("");
        const { page } = await signedIn(person);
        const before = person.streams;
        // The server has said something within the last seconds, and for the page more than a minute goes by.
        await page.clock.fastForward(70_000);
        await until("another stream", async () => {
            await page.clock.fastForward(6000);
            return person.streams > before;
        });
        await live(page);
    },

    async "a keyboard, and a phone"(stage) {
        const ann = await stage.person("ann");
        await ann.context.grantPermissions(["clipboard-read", "clipboard-write"]);
        await ann.page.getByRole("button", { name: "Copy" }).focus();
        await ann.page.keyboard.press("Enter");
        await ann.page.getByRole("button", { name: "Copied" }).waitFor();
        const copied = await ann.page.evaluate(() => navigator.clipboard.readText());
        equal(copied.startsWith("handover task send"), true, `what was copied (${copied})`);
        const { id } = await begun(stage, "analyst", "Q4 sales analysis");
        const phone = await stage.person("planner", { viewport: { width: 400, height: 800 } });
        const page = await phone.open(`/tasks/${id}`);
        const here = () => page.locator("a[data-tab][aria-current=true]").allInnerTexts();
        equal(await here(), ["Timeline"], "the tab at first");
        await page.getByRole("link", { name: "About" }).click();
        equal(await here(), ["About"], "the tab after a click");
    },

    async "text of agents runs nowhere"(stage) {
        const evil = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>\u202egnp.exe";
        const analyst = await stage.worker("analyst", evil, [{ name: "dig", description: evil }]);
        const asked = { title: evil, instructions: evil, agent: "analyst", input: { evil } };
        const { task_id: id } = await stage.agent("planner").call("delegate_task", asked);
        const job = await stage.job(analyst);
        await job.update({ message: evil, progress: 0.5 });
        const question = job.ask({ q: { message: evil, schema: { type: "object", properties: { a: { type: "string", title: evil } } } } });
        question.catch(() => {});
        const person = await stage.person("planner");
        for (const target of ["/", "/tasks", "/agents", `/tasks/${id}`, `/tasks/${id}/events`, `/tasks/${id}/replay`]) {
            const page = await person.open(target);
            if (target === "/") await page.getByText("[U+202E]").first().waitFor();
            equal((await page.title()).includes("Handover"), true, `the title of ${target}`);
            equal(await page.locator("main img, main script, main iframe").count(), 0, `what ${target} loads`);
        }
    },
};
