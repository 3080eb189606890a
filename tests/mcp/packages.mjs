// Preloaded with --import: lets the programs of tests/ import the packages that scripts/node has installed.

import { registerHooks } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const HERE = pathToFileURL(path.dirname(import.meta.dirname)).href;
// Node itself is one of those packages: target/node/node_modules/node-.../bin/node.
const INSTALLED = pathToFileURL(path.resolve(process.execPath, "../../../..", "package.json")).href;

registerHooks({
    resolve(specifier, context, next) {
        const ours = context.parentURL?.startsWith(HERE) && !/^(\.|node:|file:)/.test(specifier);
        return next(specifier, ours ? { ...context, parentURL: INSTALLED } : context);
    },
});
