// Calls methods of CheckpointStore: a request is a line `{do: method, on: {url}, with: {given}}`. No packages needed.

import { createInterface } from "node:readline";
import { CheckpointStore } from "../../../clients/js/src/agentos.js";
import { open } from "../../../clients/js/src/index.js";

const say = (value = null) => process.stdout.write(`${JSON.stringify({ value })}\n`);

say("ready");
for await (const line of createInterface({ input: process.stdin })) {
  const { do: method, on, with: asked } = JSON.parse(line);
  say((await new CheckpointStore(open(on.url))[method](...asked.given)) ?? undefined);
}
