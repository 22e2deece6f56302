// `node ask.mjs URL METHOD ARGUMENTS` calls a method of CheckpointStore and prints what it returned. No packages needed.

import { CheckpointStore } from "../../../clients/js/src/agentos.js";
import { open } from "../../../clients/js/src/index.js";

const [url, method, given] = process.argv.slice(2);
const checkpoints = new CheckpointStore(open(url));
process.stdout.write(JSON.stringify((await checkpoints[method](...JSON.parse(given))) ?? null));
