// Lost requests and lost answers, by a proxy: LIMPET_TEST_URL. `test_client.py` says what it drops.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { test } from "node:test";

import { open } from "../../clients/js/src/index.js";

const store = open(process.env.LIMPET_TEST_URL, { retryMs: 20_000 });
const chat = store.scope("retries");

async function idsOf(items) {
  const found = [];
  for await (const each of items) found.push(each.id);
  return found;
}

test("a save whose answer is lost, twice, is stored once", async () => {
  const saved = await chat.save({ n: 1 });
  assert.deepEqual(await idsOf(chat.history()), [saved.id]);
  assert.deepEqual((await chat.load()).state, { n: 1 });
});

test("a note is written though the request was lost", async () => {
  assert.equal((await chat.setNote("n", 1)).value, 1);
});

test("a compared write whose answer is lost says so, and is not repeated", async () => {
  await assert.rejects(chat.delete({ expect: (await chat.info()).revision }), {
    name: "Unavailable",
    outcomeKnown: false,
  });
  assert.equal(await chat.load(), null);
});

test("a server that cannot be reached is tried for as long as was asked", async () => {
  const gone = open("http://127.0.0.1:9", { retryMs: 200, fetch: () => Promise.reject(new TypeError("fetch failed")) });
  await assert.rejects(gone.scope("a").load(), { name: "Unavailable", outcomeKnown: false });
  await assert.rejects(gone.scope("a").fork("a"), { name: "Unavailable", outcomeKnown: false });
  await assert.rejects(gone.scope("a").watch().next(), { name: "Unavailable" });
});

test("the token is sent, and one that is not accepted is not tried again", async () => {
  const sent = [];
  const guard = createServer(({ headers }, reply) => {
    sent.push(headers.authorization);
    reply.writeHead(401, { "content-type": "application/problem+json" });
    reply.end(JSON.stringify({ type: "urn:limpet:Unauthorized", title: "Unauthorized", status: 401, detail: "no" }));
  }).listen(0, "127.0.0.1");
  await once(guard, "listening");
  const { port } = guard.address();
  const refused = { name: "LimpetError", status: 401, message: "no" };
  await assert.rejects(open(`http://127.0.0.1:${port}`, { token: "k3W" }).scope("a").load(), refused);
  await assert.rejects(open(`http://127.0.0.1:${port}`).scope("a").watch().next(), refused);
  assert.deepEqual(sent, ["Bearer k3W", undefined]);
  guard.closeAllConnections();
  guard.close();
});

test("what is not our server is said to be another", async () => {
  const other = createServer((request, reply) => {
    if (request.url.includes("moved")) reply.writeHead(301, { location: "/elsewhere" });
    reply.end("<html>");
  }).listen(0, "127.0.0.1");
  await once(other, "listening");
  const { port } = other.address();
  await assert.rejects(open(`http://127.0.0.1:${port}`).scope("a").load(), { name: "LimpetError", message: /not JSON/ });
  await assert.rejects(open(`http://127.0.0.1:${port}/moved`).scope("a").save({}), { name: "LimpetError", status: 301 });
  other.closeAllConnections();
  other.close();
});

test("a server that does not answer in time is given up", async () => {
  const silent = createServer(() => {}).listen(0, "127.0.0.1");
  await once(silent, "listening");
  const slow = open(`http://127.0.0.1:${silent.address().port}`, { timeoutMs: 50, retryMs: 0 });
  await assert.rejects(slow.scope("a").load(), { name: "Unavailable", message: /in time/ });
  silent.closeAllConnections();
  silent.close();
});
