// AgentOS's runtime over our store: `node runtime.mjs URL` runs a graph of three nodes, of which the second never ends;
// `node runtime.mjs URL RUN` resumes it. Prints a line of JSON for the run and for each node that is executed.

import { GraphRuntime } from "@framers/agentos/orchestration";
import { CheckpointStore } from "limpet/agentos";
import { open } from "limpet";

const [url, runId] = process.argv.slice(2);
const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

const ids = ["a", "b", "c"];
const node = (id) => ({
  id,
  type: "tool",
  executorConfig: { type: "tool", toolName: id },
  executionMode: "single_turn",
  effectClass: "write",
  checkpoint: "after",
});
const pairs = [["__START__", "a"], ["a", "b"], ["b", "c"], ["c", "__END__"]];
const graph = {
  id: "report",
  name: "report",
  nodes: ids.map(node),
  edges: pairs.map(([source, target]) => ({ id: `${source}-${target}`, source, target, type: "static" })),
  stateSchema: { input: {}, scratch: {}, artifacts: {} },
  reducers: {},
  checkpointPolicy: "every_node",
  memoryConsistency: "live",
};
const nodeExecutor = {
  async execute({ id }) {
    say(id);
    if (id === "b" && runId === undefined) await new Promise((resolve) => setTimeout(resolve, 600_000));
    return { success: true, output: `${id}-out`, scratchUpdate: { [id]: 1 }, artifactsUpdate: { [id]: `${id}-out` } };
  },
};

const runtime = new GraphRuntime({ checkpointStore: new CheckpointStore(open(url)), nodeExecutor });
if (runId === undefined) {
  for await (const event of runtime.stream(graph, { topic: "kelp" })) if (event.type === "run_start") say(event.runId);
} else say(await runtime.resume(graph, runId));
