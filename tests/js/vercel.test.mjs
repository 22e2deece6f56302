// Chats of the Vercel AI SDK, against a real server. The adapter needs no packages.

import assert from "node:assert/strict";
import test from "node:test";
import { AlreadyExists, open } from "../../clients/js/src/index.js";
import { LimpetChatStore } from "../../clients/js/src/vercel.js";

const store = open(process.env.LIMPET_TEST_URL);
const chats = new LimpetChatStore(store);
const message = (id, text) => ({ id, role: "user", metadata: undefined, parts: [{ type: "text", text }] });
const plain = (value) => JSON.parse(JSON.stringify(value));

test("chats are saved, listed and deleted", async () => {
  assert.deepEqual(await chats.load("v/a"), []);
  const messages = [message("1", "hello"), message("2", "hi")];
  await chats.save({ chatId: "v/a", messages });
  messages.push(message("3", "how?"));
  await chats.save({ chatId: "v/a", messages });
  await chats.save({ chatId: "v/a", messages });
  messages[2] = message("3", "why?"); // it was edited
  await chats.save({ chatId: "v/a", messages });
  assert.deepEqual(await chats.load("v/a"), plain(messages));

  await chats.save({ chatId: "v/b", messages: [] });
  await store.scope("v/c", "main", "conversation").save({ items: [] }, { metadata: { openai: true } });
  const listed = [];
  for await (const each of chats.list({ prefix: "v/" })) listed.push(each.chatId);
  assert.deepEqual(listed, ["v/a", "v/b"]);
  const sizes = [];
  const scope = chats.scope("v/a");
  for await (const each of scope.loadMany(scope.ids())) sizes.push(each.state.messages.length);
  assert.deepEqual(sizes, [2, 3, 3]);
  await chats.delete("v/a");
  assert.deepEqual(await chats.load("v/a"), []);
});

test("another framework's conversation is neither read nor changed", async () => {
  await store.scope("v/foreign", "main", "conversation").save({ messages: [] }, { metadata: { adk: {} } });
  const chatId = "v/foreign";
  const calls = [
    () => chats.load(chatId),
    () => chats.save({ chatId, messages: [] }),
    () => chats.delete(chatId),
    () => chats.record(chatId, new ReadableStream()),
  ];
  for (const call of calls) await assert.rejects(call, (error) => error instanceof AlreadyExists && error.message.includes("Google ADK, not of the Vercel AI SDK"));
});

async function all(stream) {
  const found = [];
  for await (const each of stream) found.push(each);
  return found;
}

test("a stream is resumed from its beginning while it is recorded", async () => {
  assert.equal(await chats.resume("v/stream"), null);
  let controller;
  const source = new ReadableStream({ start: (given) => (controller = given) });
  const recorded = chats.record("v/stream", source);
  controller.enqueue("one");
  while ((await store.scope("v/stream", "main", "stream").load())?.state.chunks.length !== 1);
  const readers = [await chats.resume("v/stream"), await new LimpetChatStore(open(process.env.LIMPET_TEST_URL)).resume("v/stream")];
  const left = await chats.resume("v/stream");
  await left.cancel();
  const read = Promise.all(readers.map(all));
  for (let at = 0; at < 50; at += 1) controller.enqueue(`${at}`);
  controller.close();
  await recorded;
  const expected = ["one", ...Array.from({ length: 50 }, (_, at) => `${at}`)];
  assert.deepEqual(await read, [expected, expected]);
  assert.equal(await chats.resume("v/stream"), null);
  assert.deepEqual(await all(store.scope("v/stream", "main", "stream").history()), []);
});

test("a stream that fails ends for those who resumed it", async () => {
  let controller;
  const recorded = chats.record("v/failed", new ReadableStream({ start: (given) => (controller = given) }));
  while ((await store.scope("v/failed", "main", "stream").info()) === null);
  const read = all(await chats.resume("v/failed"));
  controller.error(new Error("the model is gone"));
  await assert.rejects(recorded, /the model is gone/);
  assert.deepEqual(await read, []);
});
