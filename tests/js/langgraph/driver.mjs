// Graphs of LangGraph.js in a process of their own: `node driver.mjs URL VERB THREAD [TEXT]` prints lines of JSON.

import { isDeepStrictEqual } from "node:util";
import { AIMessage, HumanMessage, ToolMessage } from "@langchain/core/messages";
import { Annotation, Command, END, interrupt, MessagesAnnotation, Send, START, StateGraph } from "@langchain/langgraph";
import { open } from "limpet";
import { LimpetSaver } from "limpet/langgraph";

const [url, verb, threadId, text] = process.argv.slice(2);
const checkpointer = new LimpetSaver(open(url));
const config = { configurable: { thread_id: threadId }, durability: "sync" };
const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

// The same graph as in test_langgraph_js.py: each turn calls a tool.
function reply({ messages }) {
  const id = `js-${messages.length}`;
  const call = { name: "clock", args: { zone: "UTC" }, id: `call-${id}`, type: "tool_call" };
  return {
    messages: [
      new AIMessage({ id, content: "", tool_calls: [call], usage_metadata: { input_tokens: 1, output_tokens: 2, total_tokens: 3 } }),
      new ToolMessage({ id: `${id}-tool`, content: "noon", tool_call_id: call.id }),
      new AIMessage({ id: `${id}-end`, content: [{ type: "text", text: `${messages.length} so far` }] }),
    ],
  };
}

const chat = new StateGraph(MessagesAnnotation).addNode("bot", reply).addEdge(START, "bot").addEdge("bot", END);

// Asks a question, and then works on the answer in parallel.
const Asking = Annotation.Root({ answers: Annotation({ reducer: (a, b) => a.concat(b), default: () => [] }) });
const asking = new StateGraph(Asking)
  .addNode("ask", () => ({ answers: [interrupt({ question: "which?" })] }))
  .addNode("work", ({ answer }) => ({ answers: [`js worked on ${answer}`] }))
  .addEdge(START, "ask")
  .addConditionalEdges("ask", ({ answers }) => answers.map((answer) => new Send("work", { answer })), ["work"]);

// Two nodes in parallel. With "hang", one of them never ends.
const Steps = Annotation.Root({ done: Annotation({ reducer: (a, b) => a.concat(b), default: () => [] }) });
const step = (name) => async () => {
  say(name);
  if (name === "right" && text === "hang") await new Promise((resolve) => setTimeout(resolve, 600_000));
  return { done: [name] };
};
const parallel = new StateGraph(Steps)
  .addNode("first", step("first"))
  .addNode("left", step("left"))
  .addNode("right", step("right"))
  .addNode("last", step("last"))
  .addEdge(START, "first")
  .addEdge("first", "left")
  .addEdge("first", "right")
  .addEdge(["left", "right"], "last");

function shown(message) {
  const { id, content, tool_calls: calls = [], usage_metadata: usage = null } = message;
  return { type: message.getType(), id, content, calls, usage };
}

const verbs = {
  async turn() {
    const { messages } = await chat.compile({ checkpointer }).invoke({ messages: [new HumanMessage({ id: `h-${text}`, content: text })] }, config);
    say(messages.map(shown));
  },
  async history() {
    const found = [];
    for await (const state of chat.compile({ checkpointer }).getStateHistory(config)) {
      found.push((state.values.messages ?? []).length);
    }
    say(found);
  },
  async ask() {
    await asking.compile({ checkpointer }).invoke({}, config);
    const state = await asking.compile({ checkpointer }).getState(config);
    say(state.tasks.flatMap((task) => task.interrupts.map((each) => each.value)));
  },
  async answer() {
    say((await asking.compile({ checkpointer }).invoke(new Command({ resume: text }), config)).answers);
  },
  async run() {
    say((await parallel.compile({ checkpointer }).invoke(text === "resume" ? null : {}, config)).done);
  },
  // Values of JavaScript's own come back as they were.
  async values() {
    const Any = Annotation.Root({ value: Annotation() });
    const graph = new StateGraph(Any).addNode("same", () => ({})).addEdge(START, "same").compile({ checkpointer });
    const value = {
      $first: { lc: "no record", more: { lc: 2, text: "nor this" } },
      bytes: new Uint8Array([0, 255]),
      map: new Map([["k", [1]]]),
      nothing: undefined,
      ...(text === "shared" ? {} : { pattern: /a/g }),
      set: new Set([1, "x"]),
      tool: new ToolMessage({ content: "r", tool_call_id: "c", artifact: { $ref: 1 } }),
    };
    await graph.invoke({ value }, config);
    const found = (await graph.getState(config)).values.value;
    say({
      keys: Object.keys(found),
      same: [found.$first.lc, [...found.bytes], [...found.map], found.nothing === undefined, String(found.pattern), [...found.set]],
      tool: [found.tool instanceof ToolMessage, found.tool.artifact],
    });
  },
};

verbs.race = async () => {
  const savers = [checkpointer, new LimpetSaver(open(url)), new LimpetSaver(open(url))];
  const ids = Array.from({ length: 20 }, (_, at) => String(at).padStart(2, "0"));
  const checkpoint = { v: 4, ts: new Date().toISOString(), channel_values: {}, channel_versions: {}, versions_seen: {} };
  const put = (id, at) => savers[at % 3].put(config, { ...checkpoint, id }, { source: "loop", step: at, parents: {} }, {});
  const shuffled = [...ids].sort((a, b) => a[1].localeCompare(b[1]));
  await Promise.all(shuffled.map(put));
  const on = { configurable: { ...config.configurable, checkpoint_id: ids[0] } };
  const writes = (at) => savers[at % 3].putWrites(on, Array.from({ length: at + 1 }, (_, each) => ["c", each]), "task");
  await Promise.all([0, 1, 2, 3, 4, 5, 6, 7].map(writes));
  for (const error of ["first", "second"]) await savers[0].putWrites(on, [["__error__", error]], "task");
  const listed = [];
  for await (const each of checkpointer.list(config)) listed.push(each.checkpoint.id);
  const [[, , error], ...values] = (await checkpointer.getTuple(on)).pendingWrites;
  say({ latest: (await savers[1].getTuple(config)).checkpoint.id, ids: listed, writes: values.map((each) => each[2]), error });
};

// A list decodes each message once, and gives what is given one by one.
verbs.list = async () => {
  const messages = Array.from({ length: 40 }, (_, at) => new HumanMessage({ id: `m-${at}`, content: `${at}` }));
  const checkpoint = { v: 4, ts: new Date().toISOString(), channel_versions: {}, versions_seen: {} };
  for (const at of messages.keys()) {
    const values = { messages: messages.slice(0, at + 1), n: at };
    const metadata = { source: "loop", step: at, parents: {} };
    await checkpointer.put(config, { ...checkpoint, id: String(at).padStart(2, "0"), channel_values: values }, metadata, { messages: 1, n: 1 });
  }
  const loadsTyped = checkpointer.serde.loadsTyped.bind(checkpointer.serde);
  let decoded = 0;
  checkpointer.serde.loadsTyped = (type, data) => {
    decoded += data.split("HumanMessage").length - 1;
    return loadsTyped(type, data);
  };
  const listed = [];
  for await (const each of checkpointer.list(config)) listed.push(each);
  const counted = decoded;
  const same = await Promise.all(
    listed.map(async (each) => isDeepStrictEqual(each, await checkpointer.getTuple(each.config))),
  );
  say({ decoded: counted, lengths: listed.map((each) => each.checkpoint.channel_values.messages.length), same: same.every(Boolean) });
};

verbs.show = async () => {
  const { big, bytes, map, pair, set } = (await checkpointer.getTuple(config)).checkpoint.channel_values.value;
  say([big, [...bytes], [...map], pair, [...set], bytes instanceof Uint8Array, map instanceof Map, set instanceof Set]);
};

try {
  await verbs[verb]();
} catch (error) {
  say({ error: error.name, message: error.message });
}
