// The Claude Agent SDK over a Limpet store: `node driver.mjs URL VERB ...` prints lines of JSON.

import { once } from "node:events";
import { createServer } from "node:http";
import { isDeepStrictEqual } from "node:util";
import * as sdk from "@anthropic-ai/claude-agent-sdk";
import { open } from "limpet";
import { LimpetClaudeStore } from "limpet/claude";

const [url, verb, ...given] = process.argv.slice(2);
const sessionStore = new LimpetClaudeStore(open(url));
const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
const uuid = (at) => `00000000-0000-4000-8000-${String(at).padStart(12, "0")}`;

function said(at, content, sessionId = given[1] ?? "s") {
  const common = { uuid: uuid(at), parentUuid: at > 1 ? uuid(at - 1) : null, sessionId, cwd: "/trip", isSidechain: false };
  const type = at % 2 ? "user" : "assistant";
  const message = at % 2 ? { role: "user", content } : { role: "assistant", content: [{ type: "text", text: content }] };
  return { ...common, type, message, timestamp: new Date(1_794_701_072_000 + at * 1_000).toISOString() };
}

const verbs = {
  // The same calls give the same answers as those of the SDK's own store.
  async contract(projectKey) {
    const calls = [];
    const main = { projectKey, sessionId: "a%2Fb" };
    const sub = { ...main, subpath: "subagents/agent-1" };
    const other = { ...main, sessionId: "other" };
    const odd = { type: "odd", cut: "\ud83d", path: "C:\\ud83d", "limpet": { deep: [{ é: null }] } };
    let deep = "leaf";
    for (let at = 0; at < 300; at += 1) deep = { deep };
    const steps = [
      ["load", main],
      ["append", main, [said(1, "hello"), { type: "mode", mode: "normal" }]],
      ["append", main, [said(2, "hi"), odd]],
      ["append", sub, [{ type: "user", uuid: uuid(9), deep }]],
      ["append", other, [{ type: "tag", tag: "t" }, said(3, "how?"), { type: "custom-title", customTitle: "T" }]],
      ["load", main],
      ["load", sub],
      ["listSubkeys", main],
      ["listSubkeys", other],
      ["listSessions", projectKey],
      ["listSessionSummaries", projectKey],
      ["listSessionSummaries", "none"],
      ["delete", sub],
      ["load", sub],
      ["load", main],
      ["delete", main],
      ["load", main],
      ["listSessions", projectKey],
    ];
    const plain = (found) =>
      Array.isArray(found) && found[0]?.mtime !== undefined
        ? found.map(({ mtime, ...rest }) => ({ isTime: Number.isInteger(mtime) && mtime > 0, ...rest })).sort(bySession)
        : found;
    const bySession = (a, b) => (a.sessionId < b.sessionId ? -1 : 1);
    const own = new sdk.InMemorySessionStore();
    for (const [name, ...given] of steps) {
      const [ours, theirs] = [await sessionStore[name](...given), await own[name](...given)].map(plain);
      if (!isDeepStrictEqual(ours, theirs)) calls.push({ name, given, ours, theirs });
    }
    say(calls);
  },
  // The SDK's functions.
  async functions(projectKey, sessionId) {
    const options = { sessionStore, dir: process.cwd() };
    const key = { projectKey: (await keyOf(options)) ?? projectKey, sessionId };
    for (const batch of [[said(1, "hello"), said(2, "hi")], [said(3, "how?"), said(4, "so")]]) await sessionStore.append(key, batch);
    const texts = async (id) => (await sdk.getSessionMessages(id, options)).map(({ message: { content } }) => content[0].text ?? content);
    const fork = await sdk.forkSession(sessionId, { ...options, upToMessageId: uuid(2) });
    await sdk.renameSession(fork.sessionId, "By train", options);
    const { forkedFrom } = await firstOf(sessionStore.scope({ ...key, sessionId: fork.sessionId }));
    const titles = async () => (await sdk.listSessions(options)).map((each) => each.summary).sort();
    const found = { messages: await texts(sessionId), fork: await texts(fork.sessionId), titles: await titles() };
    await sdk.deleteSession(sessionId, options);
    say({ ...found, origin: forkedFrom.scope.sessionId === sessionStore.scope(key).sessionId, left: await titles() });
  },
  // Appends until it is killed; each batch is sent twice, as after a lost answer.
  async storm(projectKey, sessionId) {
    for (let at = 1; ; at += 1) {
      const batch = [said(at, `${at}`)];
      await sessionStore.append({ projectKey, sessionId }, batch);
      await sessionStore.append({ projectKey, sessionId }, batch);
      say(at);
    }
  },
  async add(projectKey, sessionId, at, text) {
    await sessionStore.append({ projectKey, sessionId }, [said(Number(at), text)]);
  },
  async show(projectKey, sessionId) {
    say((await sessionStore.load({ projectKey, sessionId })).map((each) => each.uuid));
    say(await sessionStore.listSessionSummaries(projectKey));
  },
};

// The API of Claude: it says how many questions it has read, and never answers "hang".
const model = createServer(async (request, response) => {
  const body = [];
  for await (const each of request) body.push(each);
  const { messages = [] } = JSON.parse(Buffer.concat(body).toString() || "{}");
  const asked = messages.filter((each) => each.role === "user");
  if (given[2] === "hang") return;
  const event = (type, fields) => response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...fields })}\n\n`);
  const usage = { input_tokens: 1, output_tokens: 1 };
  response.writeHead(200, { "content-type": "text/event-stream" });
  event("message_start", { message: { id: "msg", type: "message", role: "assistant", content: [], model: "fake", usage } });
  event("content_block_start", { index: 0, content_block: { type: "text", text: "" } });
  event("content_block_delta", { index: 0, delta: { type: "text_delta", text: `I have read ${asked.length}` } });
  event("content_block_stop", { index: 0 });
  event("message_delta", { delta: { stop_reason: "end_turn" }, usage });
  event("message_stop");
  response.end();
});

// The real agent.
verbs.agent = async (executable, folder, prompt, resume) => {
  model.listen(0, "127.0.0.1");
  await once(model, "listening");
  const env = {
    ...process.env,
    ANTHROPIC_BASE_URL: `http://127.0.0.1:${model.address().port}`,
    ANTHROPIC_API_KEY: "fake",
    CLAUDE_CONFIG_DIR: folder,
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
  };
  const options = { sessionStore, sessionStoreFlush: "eager", pathToClaudeCodeExecutable: executable, env };
  const more = { model: "fake", tools: [], settingSources: [], ...(resume && { resume }) };
  for await (const message of sdk.query({ prompt, options: { ...options, ...more } })) {
    if (message.type === "system" && message.subtype === "mirror_error") say(message);
    if (message.type === "result") say([message.session_id, message.result]);
  }
  process.exit();
};

/** The key under which the SDK's functions look: they ask for it. */
async function keyOf(options) {
  let asked;
  const asking = { ...options, sessionStore: { append() {}, load() {}, async listSessions(key) { asked = key; return []; } } };
  await sdk.listSessions(asking);
  return asked;
}

async function firstOf(scope) {
  const found = [];
  for await (const each of scope.history()) found.push(each);
  return found.at(-1);
}

await verbs[verb](...given);
