// Uses the console as people do, in a real browser, and ends with a table.
//
//     node run.mjs HANDOVER CHROMIUM OUT [NAME...]
//
// HANDOVER and CHROMIUM are the programs, OUT a directory for data, logs and screenshots; with names only those plays run.

import { mkdir, rm } from "node:fs/promises";
import path from "node:path";
import { chromium } from "playwright-core";
import { Programs } from "../mcp/programs.mjs";
import { first } from "./first.mjs";
import { journeys } from "./journeys.mjs";
import { looks } from "./looks.mjs";
import { quickstarts } from "./quickstart.mjs";
import { Stage } from "./stage.mjs";
import { survivals } from "./survivals.mjs";

/** How long one play may take. */
const PLAY_WITHIN_MS = 600_000;

const [binary, executablePath, out, ...only] = process.argv.slice(2);
if (!out) {
    console.error("usage: run.mjs HANDOVER CHROMIUM OUT [NAME...]");
    process.exit(2);
}
const programs = new Programs(out);
const plays = { ...first, ...quickstarts, ...journeys, ...survivals, ...looks };

/** Play one, and say what went wrong: the play itself, or what a browser's console complained of. */
async function play(name, browser) {
    const stage = new Stage(programs, binary, browser, name, out, plays[name].settings);
    const wrong = [];
    try {
        await stage.start();
        const late = new Promise((_, reject) => {
            setTimeout(() => reject(new Error(`expected an end within ${PLAY_WITHIN_MS} ms`)), PLAY_WITHIN_MS).unref();
        });
        await Promise.race([plays[name](stage), late]);
        for (const person of stage.people) await person.close();
        await stage.stop();
    } catch (error) {
        wrong.push(error.message);
        for (const [index, { page }] of stage.people.entries()) {
            const at = path.join(out, `failed-${name}-${index}.png`);
            await page?.screenshot({ path: at, fullPage: true }).then(() => wrong.push(`see ${at}`), () => {});
        }
        stage.server?.child.kill("SIGKILL");
    }
    for (const person of stage.people) {
        await person.close();
        wrong.push(...person.complaints.map((complaint) => `the browser's console: ${complaint}`));
    }
    return wrong;
}

async function main() {
    await rm(out, { recursive: true, force: true });
    await mkdir(path.join(out, "screenshots"), { recursive: true });
    const unknown = only.find((name) => !(name in plays));
    if (unknown) throw new Error(`expected one of ${Object.keys(plays).join(", ")}, found ${unknown}`);
    // As root, and in containers, Chromium's own sandbox is not to be had; only our own pages are opened.
    const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
    let [passed, failed] = [0, 0];
    for (const name of only.length ? only : Object.keys(plays)) {
        const began = Date.now();
        const wrong = await play(name, browser);
        if (wrong.length) failed += 1;
        else passed += 1;
        console.log(`${wrong.length ? "FAILED" : "ok    "} ${String(Date.now() - began).padStart(6)} ms  ${name}`);
        for (const each of wrong) console.log(`       ${each.split("\n").slice(0, 12).join("\n       ")}`);
    }
    await browser.close();
    console.log(`${passed} passed, ${failed} failed`);
    return failed === 0;
}

const end = (code) => {
    programs.end();
    process.exit(code);
};
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => end(1));
try {
    end((await main()) ? 0 : 1);
} catch (error) {
    console.error(error.message);
    end(1);
}
