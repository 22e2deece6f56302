// Watching and leases against a real server: LIMPET_TEST_URL.

import assert from "node:assert/strict";
import { test } from "node:test";

import * as limpet from "../../clients/js/src/index.js";

const store = limpet.open(process.env.LIMPET_TEST_URL, { retryMs: 5_000 });
let sessions = 0;
const fresh = () => store.scope(`live-${process.pid}-${(sessions += 1)}`);

test("a watch shows the current head, then what changes, and ends with the scope", async () => {
  const chat = fresh();
  const first = await chat.save({ n: 1 });
  const watch = chat.watch();
  assert.deepEqual((await watch.next()).value, first);
  const next = watch.next();
  const second = await chat.save({ n: 2 });
  assert.deepEqual((await next).value, second);
  const end = watch.next();
  await chat.delete();
  assert.deepEqual(await end, { done: true, value: undefined });
});

test("a watch begins before there is anything, and follows one snapshot", async () => {
  const chat = fresh();
  const [head, one] = [chat.watch(), store.watch({ snapshotId: "a", prefix: chat.sessionId })];
  const nexts = [head.next(), one.next()];
  const saved = await chat.save({}, { id: "a" });
  for (const next of nexts) assert.deepEqual((await next).value, saved);
  const changed = one.next();
  const updated = await chat.update("a", () => ({ status: "done" }));
  assert.deepEqual((await changed).value, updated);
  await Promise.all([head.return(), one.return()]);
});

test("the store watches sessions", async () => {
  const [a, b] = [fresh(), fresh()];
  await Promise.all([a.save({}), b.save({})]);
  const seen = [];
  for await (const { scope } of store.watch({ prefix: `live-${process.pid}-` })) {
    seen.push(scope.sessionId);
    if (seen.includes(a.sessionId) && seen.includes(b.sessionId)) break;
  }
  for await (const { scope } of store.watch({ sessionId: a.sessionId })) {
    assert.equal(scope.sessionId, a.sessionId);
    break;
  }
  assert.throws(() => store.watch({ sessionId: "a", snapshotId: "b" }), { name: "InvalidInput" });
});

test("a watch that waits ends at once when it is told to, and by itself after a time", async () => {
  const watch = fresh().watch();
  const waiting = watch.next();
  await new Promise((resolve) => setTimeout(resolve, 50));
  await watch.return();
  assert.equal((await waiting).done, true);
  const begun = performance.now();
  for await (const _ of fresh().watch(null, { timeoutS: 0.2 })) assert.fail("there is nothing");
  assert.ok(performance.now() - begun < 5_000);
});

test("what cannot be watched is said at once", async () => {
  await assert.rejects(store.scope("a", "main", "NO KIND").watch().next(), { name: "InvalidInput" });
});

test("one lease at a time: a block, an object, a wait", async () => {
  const chat = fresh();
  const answer = await chat.claim({ owner: "one", ttlS: 5 }, async (lease) => {
    assert.ok(lease instanceof limpet.Scope && lease.token && lease.expiresAt > new Date());
    await assert.rejects(chat.claim({ owner: "two" }), (error) => {
      assert.ok(error instanceof limpet.Conflict && error.expiresAt > new Date());
      return error.owner === "one";
    });
    await lease.save({ by: "one" });
    return 7;
  });
  assert.equal(answer, 7);
  const second = await chat.claim({ owner: "two" });
  setTimeout(() => second.release(), 100);
  const third = await chat.claim({ owner: "three", waitS: 10 });
  await assert.rejects(second.save({ by: "two" }), { name: "Conflict" });
  await assert.rejects(second.update((await chat.info()).id, () => ({ status: "x" })), { name: "Conflict" });
  await assert.rejects(second.setNote("n", 1), { name: "Conflict" });
  await third.append("list", [3]);
  await third[Symbol.asyncDispose]();
  assert.deepEqual((await chat.load()).state, { by: "one", list: [3] });
});

test("a lease is renewed while it is held", async () => {
  const chat = fresh();
  const lease = await chat.claim({ owner: "one", ttlS: 0.6 });
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  await assert.rejects(chat.claim({ owner: "two" }), { name: "Conflict" });
  await lease.save({});
  await lease.release();
});
