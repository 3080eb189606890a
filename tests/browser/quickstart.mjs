// What docs/quickstart.md says to do in the console, with the worker that it shows: what is clicked and typed is read from the page.

import { chmod, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { equal, live, sees, until } from "./stage.mjs";

const PAGE = path.join(import.meta.dirname, "../../docs/quickstart.md");

async function quickstart(stage) {
    const text = await readFile(PAGE, "utf8");
    const [, script] = /^```sh file=analyse\.sh\n(.*?)^```$/ms.exec(text);
    const [, steps] = /^## A person in the console\n.*?(^1\. .*?)\n\n/ms.exec(text);
    // Words are emphasised, names are code; a new line is a space.
    const said = [...steps.replaceAll(/\s+/g, " ").matchAll(/\*(.+?)\*|`(.+?)`/g)].map(([, words, name]) => words ?? name);
    equal(said.length, 15, `what the page says to click and type (${said.join(", ")})`);
    const [me, form, agent, title, instructions, delegate, waiting, asks, answer, send, again, delivers, opened, result, complete] = said;
    equal([asks, delivers, again, opened], [agent, agent, waiting, title], "what the page says again");

    const worker = path.join(path.dirname(stage.shots), "analyse.sh");
    await writeFile(worker, script);
    await chmod(worker, 0o755);
    const working = stage.command(agent, ["agent", "work", "--", path.resolve(worker)]);
    const logged = () => readFile(working.log, "utf8").catch(() => "");
    await until("a worker that waits for tasks", async () => (await logged()).includes("waiting for tasks"));

    const { page } = await stage.person(me);
    await page.getByRole("link", { name: form, exact: true }).click();
    await page.getByLabel("Agent", { exact: true }).fill(agent);
    await page.getByLabel("Title", { exact: true }).fill(title);
    await page.getByLabel("Instructions").fill(instructions);
    await page.getByRole("button", { name: delegate, exact: true }).click();
    await page.locator("h1", { hasText: title }).waitFor();
    await live(page);
    await page.locator(".timeline li", { hasText: "How shall I do it?" }).waitFor();

    await page.getByRole("link", { name: waiting }).click();
    await page.locator(".waits li", { hasText: asks }).getByText("How shall I do it?").waitFor();
    await page.getByLabel("Answer", { exact: true }).fill(answer);
    await page.getByRole("button", { name: send, exact: true }).click();
    await sees(page, "The answer was stored.");

    await page.getByRole("link", { name: again }).click();
    await sees(page, `${delivers} delivered`);
    await page.getByRole("link", { name: opened, exact: true }).click();
    await page.getByRole("region", { name: "Outcome" }).getByText(result, { exact: true }).waitFor();
    await page.getByRole("button", { name: complete, exact: true }).click();
    await sees(page, "The outcome was bound.");
    await page.locator(".head .state.completed").waitFor();

    working.child.kill("SIGTERM");
    equal(await working.ended, 0, "how the worker ended");
}

// A server without settings is in development mode, as on the page.
quickstart.settings = {};

export const quickstarts = { quickstart };
