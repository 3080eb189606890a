// What README.md says to click and type in the demo, at the server of `make run` and with the agents of `make demo`: it is read from
// the page. It makes the pictures of README.md.

import { readFile } from "node:fs/promises";
import path from "node:path";
import { equal, live, sees } from "./stage.mjs";

const PAGE = path.join(import.meta.dirname, "../../README.md");

/** How long the agents take for a step, the analyst three times as long: long enough to steer and pause them. */
const PACE = "0.4";

/** Who signs in, and what the page says to click, choose and type, in its order. */
async function instructions() {
    const text = await readFile(PAGE, "utf8");
    const [, steps] = /^(1\. \*\*Answer a question\.\*\*.*?)^`lead` speaks MCP/ms.exec(text);
    const [, me] = /sign in as `(.+?)`/.exec(steps);
    const words = [...steps.replaceAll(/\s+/g, " ").matchAll(/(?<!\*)\*([^*]+)\*(?!\*)/g)].map(([, words]) => words);
    equal(words.length, 16, `what the page says to click and type (${words.join(", ")})`);
    return { me, words };
}

async function firstTenMinutes(stage) {
    const { me, words } = await instructions();
    const [waiting, region, answer, tasks, report, guidance, steers, pause, resume, again, approve, ...rest] = words;
    const [delivered, opened, complete, replay, delegate] = rest;
    equal([again, delivered, opened], [waiting, waiting, report], "what the page says again");
    const { page } = await stage.person(me, { viewport: { width: 1200, height: 640 } });
    await live(page);
    const demo = stage.program("demo", process.env.HANDOVER_PYTHON, ["examples/demo/demo.py", PACE]);
    const picture = (name, height) =>
        page.screenshot({ path: `${stage.shots}/first-${name}.png`, clip: { x: 0, y: 0, width: 1200, height } });
    const click = (role, name) => page.getByRole(role, { name, exact: true }).click();
    // How many things wait is before its name.
    const goToWaiting = () => page.getByRole("link", { name: waiting }).click();

    /** Go to the report's page, steer, and wait until its agent was told. */
    async function steer(text) {
        await click("link", tasks);
        await page.getByRole("link", { name: report }).click();
        await page.locator(".head progress").waitFor();
        await page.getByLabel("Steer, or say something").fill(text);
        await click("button", steers);
        const line = page.locator(".timeline li", { hasText: text }).filter({ hasText: "steered" });
        await line.getByText(/delivered, event \d+, /).waitFor();
    }

    await sees(page, "Which region shall the report be about?");
    await picture("question", 320);
    await page.getByLabel("Region").selectOption(region);
    await click("button", answer);
    await sees(page, "The answer was stored.");

    await steer(guidance);
    await click("button", pause);
    await page.locator(".head .state.paused").waitFor();
    await page.getByRole("region", { name: "Delegated under it" }).getByText("Find the trend").waitFor();
    await picture("paused", 640);
    await click("button", resume);
    await page.locator(".head .state.working").waitFor();

    await goToWaiting();
    await sees(page, "lead proposed this request");
    await picture("approval", 340);
    // Whoever steers now does so while nobody works on it: it is kept for the writer.
    await steer("keep it short");
    await goToWaiting();
    await click("button", approve);
    await sees(page, "The decision was stored.");

    await sees(page, "lead delivered");
    await page.getByRole("link", { name: report }).click();
    const outcome = page.getByRole("region", { name: "Outcome" });
    await outcome.getByText(`(${guidance}). (keep it short) Checked by analyst`).waitFor();
    await page.getByRole("region", { name: "Waiting for you" }).getByRole("button", { name: complete, exact: true }).click();
    await sees(page, "The outcome was bound.");
    await page.locator(".head .state.completed").waitFor();

    await click("link", replay);
    await page.waitForURL(/\/replay/);
    await sees(page, report);
    await click("link", delegate);
    await page.getByLabel("Agent", { exact: true }).fill("lead");
    await page.getByLabel("Title", { exact: true }).fill("Another report");
    await click("button", delegate);
    await page.locator("h1", { hasText: "Another report" }).waitFor();

    demo.child.kill("SIGTERM");
    equal(await demo.ended, 0, "how the demo ended");
}

firstTenMinutes.settings = { CONFIG: "examples/demo/handover.toml" };

export const first = { "first ten minutes": firstTenMinutes };
