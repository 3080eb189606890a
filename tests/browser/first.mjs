// What README.md says to click and type in the demo, at the server of `make run` and with the agents of `make demo`. It makes
// the pictures of README.md.

import { equal, live, sees } from "./stage.mjs";

/** How long the agents take for a step, the analyst three times as long: long enough to steer and pause them. */
const PACE = "0.4";

/** Go to the report's page, steer, and wait until its agent was told. */
async function steer(page, text) {
    await page.getByRole("link", { name: "Tasks", exact: true }).click();
    await page.getByRole("link", { name: "Sales report" }).click();
    await page.locator(".head progress").waitFor();
    await page.getByLabel("Steer, or say something").fill(text);
    await page.getByRole("button", { name: "Steer", exact: true }).click();
    const line = page.locator(".timeline li", { hasText: text }).filter({ hasText: "steered" });
    await line.getByText(/delivered, event \d+, /).waitFor();
}

async function firstTenMinutes(stage) {
    const { page } = await stage.person("you", { viewport: { width: 1200, height: 640 } });
    await live(page);
    const demo = stage.program("demo", process.env.HANDOVER_PYTHON, ["examples/demo/demo.py", PACE]);
    const picture = (name, height) =>
        page.screenshot({ path: `${stage.shots}/first-${name}.png`, clip: { x: 0, y: 0, width: 1200, height } });

    await sees(page, "Which region shall the report be about?");
    await picture("question", 320);
    await page.getByLabel("Region").selectOption("Europe");
    await page.getByRole("button", { name: "Answer", exact: true }).click();
    await sees(page, "The answer was stored.");

    await steer(page, "compare with last year");
    await page.getByRole("button", { name: "Pause", exact: true }).click();
    await page.locator(".head .state.paused").waitFor();
    await page.getByRole("region", { name: "Delegated under it" }).getByText("Find the trend").waitFor();
    await picture("paused", 640);
    await page.getByRole("button", { name: "Resume", exact: true }).click();
    await page.locator(".head .state.working").waitFor();

    await page.getByRole("link", { name: /^Waiting/ }).click();
    await sees(page, "lead proposed this request");
    await picture("approval", 340);
    // Whoever steers now does so while nobody works on it: it is kept for the writer.
    await steer(page, "keep it short");
    await page.getByRole("link", { name: /^Waiting/ }).click();
    await page.getByRole("button", { name: "Approve", exact: true }).click();
    await sees(page, "The decision was stored.");

    await sees(page, "lead delivered");
    await page.getByRole("link", { name: "Sales report" }).click();
    const outcome = page.getByRole("region", { name: "Outcome" });
    await outcome.getByText("(compare with last year). (keep it short) Checked by analyst").waitFor();
    await page.getByRole("region", { name: "Waiting for you" }).getByRole("button", { name: "Complete", exact: true }).click();
    await sees(page, "The outcome was bound.");
    await page.locator(".head .state.completed").waitFor();

    demo.child.kill("SIGTERM");
    equal(await demo.ended, 0, "how the demo ended");
}

firstTenMinutes.settings = { CONFIG: "examples/demo/handover.toml" };

export const first = { "first ten minutes": firstTenMinutes };
