// Agents of the OpenAI Agents SDK, with a fake model: `node openai.mjs URL VERB SESSION [TEXT]` prints lines of JSON.

import { Agent, MemorySession, run, setTracingDisabled, tool, Usage } from "@openai/agents";
import { open } from "limpet";
import { LimpetSession } from "limpet/openai";
import { z } from "zod";

const [url, verb, sessionId, text] = process.argv.slice(2);
const session = new LimpetSession(sessionId, open(url));
const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
setTracingDisabled(true);

// It calls the tool for each question, and then says what the tool returned.
const model = {
  async getResponse({ input }) {
    const last = input.at(-1);
    const id = `${input.length}`;
    const output =
      last.type === "function_call_result"
        ? { type: "message", role: "assistant", status: "completed", content: [{ type: "output_text", text: `found: ${last.output.text ?? last.output}` }] }
        : { type: "function_call", callId: `call-${id}`, name: "look_up", status: "completed", arguments: JSON.stringify({ word: textOf(last) }) };
    return { output: [output], usage: new Usage() };
  },
};

function textOf({ content }) {
  return typeof content === "string" ? content : content[0].text;
}

const lookUp = tool({
  name: "look_up",
  description: "Look up a word.",
  parameters: z.object({ word: z.string() }),
  async execute({ word }) {
    say(`look up ${word}`);
    if (text === "hang") await new Promise((resolve) => setTimeout(resolve, 600_000));
    return word.toUpperCase();
  },
});
const agent = new Agent({ name: "helper", model, tools: [lookUp] });

const verbs = {
  async turn() {
    const { finalOutput } = await run(agent, text, { session });
    say(finalOutput);
  },
  async items() {
    say(await session.getItems());
  },
  // What a run leaves in it is what it leaves in the SDK's own session.
  async same() {
    const own = new MemorySession();
    for (const each of [own, session]) for (const word of ["shell", "rock"]) await run(agent, word, { session: each });
    const shown = async (each) => each.prepareHistoryItemsForPersistenceComparison(await own.getItems());
    const items = await session.getItems();
    say({
      same: JSON.stringify(session.prepareHistoryItemsForPersistenceComparison(items)) === JSON.stringify(await shown(session)),
      count: items.length,
      last: [await session.getItems(1), await session.getItems(0)].map((each) => each.length),
      popped: textOf(await session.popItem()),
      left: (await session.getItems()).length,
    });
    await session.clearSession();
    const snapshots = [];
    for await (const each of session.scope.history()) snapshots.push(each.id);
    say({ items: await session.getItems(), popped: (await session.popItem()) ?? null, snapshots: snapshots.length });
  },
};

try {
  await verbs[verb]();
} catch (error) {
  say({ error: error.name, message: error.message });
}
