// Every verb of the client against a real server, which is empty: LIMPET_TEST_URL.

import assert from "node:assert/strict";
import { test } from "node:test";

import * as limpet from "../../clients/js/src/index.js";

const store = limpet.open(process.env.LIMPET_TEST_URL, { retryMs: 5_000 });
let sessions = 0;
const fresh = () => store.scope(`chat/${process.pid}-${(sessions += 1)} ü%?&=.`);

async function all(items) {
  const found = [];
  for await (const each of items) found.push(each);
  return found;
}

const idsOf = async (items) => (await all(items)).map((each) => each.id);

test("a state comes back as it was saved", async () => {
  const chat = fresh();
  assert.equal(await chat.load(), null);
  assert.equal(await chat.info(), null);
  const state = { text: "Grüße 👋\u0000", list: [1, -0.5, 1e300, null, true, [], {}], nested: { "/~": { z: 1, a: 2 } } };
  const at = new Date("2026-01-02T03:04:05.678Z");
  const saved = await chat.save(state, {
    id: "step-1",
    status: "done",
    labels: { "run id": "r=7" },
    metadata: { tokens: { camelCase: 1, snake_case: 2 } },
    createdAt: at,
  });
  const found = await chat.load();
  assert.deepEqual(found.state, state);
  assert.deepEqual(Object.keys(found.state.nested["/~"]), ["z", "a"]);
  const { state: _, ...info } = found;
  assert.deepEqual(info, saved);
  assert.deepEqual(await chat.info("step-1"), saved);
  assert.deepEqual(saved.scope, chat.key);
  assert.deepEqual(saved.createdAt, at);
  assert.deepEqual(saved.metadata, { tokens: { camelCase: 1, snake_case: 2 } });
  assert.ok(saved.updatedAt instanceof Date && Math.abs(Date.now() - saved.updatedAt) < 60_000);
  assert.equal(saved.parentId, null);
  assert.equal(saved.kept, true);
  assert.equal((await chat.save({ a: 1, b: undefined })).size, '{"a":1}'.length);
});

test("what is not JSON is refused with its path, and nothing is stored", async () => {
  const chat = fresh();
  const itself = {};
  itself.self = itself;
  const refused = [
    [{ a: [1n] }, "/a/0"],
    [{ a: { "b/c~": NaN } }, "/a/b~1c~0"],
    [[1, undefined], "/1"],
    [[1, , 2], "/1"],
    [{ f() {} }, "/f"],
    [{ m: new Map([[1, 2]]) }, "/m"],
    [{ b: new Uint8Array(2) }, "/b"],
    [undefined, ""],
    [itself, null],
  ];
  for (const [state, path] of refused) {
    await assert.rejects(chat.save(state), { name: "InvalidInput", path });
  }
  await assert.rejects(chat.save({}, { metadata: { n: Infinity } }), { name: "InvalidInput", path: "/n" });
  await assert.rejects(chat.setNote("n", { x: 1n }), { name: "InvalidInput", path: "/x" });
  await assert.rejects(chat.append("list", [() => 1]), { name: "InvalidInput", path: "/0" });
  assert.equal(await chat.load(), null);
});

test("compare-and-set: the loser stores nothing, and learns what it missed", async () => {
  const chat = fresh();
  const first = await chat.save({ n: 1 }, { expect: null });
  const second = await chat.save({ n: 2 }, { expect: first.revision });
  const lost = { name: "Conflict", expected: first.revision, found: second.revision };
  await assert.rejects(chat.save({ n: 3 }, { expect: first.revision }), lost);
  await assert.rejects(chat.save({ n: 3 }, { expect: null }), { name: "Conflict", expected: null });
  await assert.rejects(chat.append("list", [1], { expect: first.revision }), { name: "Conflict" });
  await assert.rejects(chat.restore(first, { expect: first.revision }), { name: "Conflict" });
  await assert.rejects(chat.delete({ expect: first.revision }), { name: "Conflict" });
  await assert.rejects(chat.save({}, { expect: "not a revision" }), { name: "InvalidInput" });
  assert.deepEqual((await all(chat.history())).map((each) => each.id), [second.id, first.id]);
});

test("an id is stored once: the same again is nothing new, something else is refused", async () => {
  const chat = fresh();
  const saved = await chat.save({ n: 1 }, { id: "a" });
  assert.deepEqual(await chat.save({ n: 1 }, { id: "a" }), saved);
  await assert.rejects(chat.save({ n: 2 }, { id: "a" }), (error) => {
    assert.ok(error instanceof limpet.AlreadyExists && error instanceof limpet.LimpetError);
    assert.deepEqual([error.id, error.scope], ["a", chat.key]);
    return true;
  });
  const replaced = await chat.save({ n: 2 }, { id: "a", overwrite: true });
  assert.notEqual(replaced.revision, saved.revision);
  assert.deepEqual((await chat.load("a")).state, { n: 2 });
});

test("drafts, roots, and snapshots that do not become the head", async () => {
  const chat = fresh();
  const kept = await chat.save({ n: 1 });
  const draft = await chat.save({ n: 2 }, { keep: false });
  assert.deepEqual([draft.kept, draft.parentId], [false, kept.id]);
  assert.deepEqual(await idsOf(chat.history()), [kept.id]);
  const root = await chat.save({ n: 3 }, { parent: null, head: false });
  assert.equal(root.parentId, null);
  assert.equal((await chat.info()).id, draft.id);
  const child = await chat.save({ n: 4 }, { parent: kept });
  assert.equal(child.parentId, kept.id);
  await assert.rejects(chat.save({}, { keep: false, head: false }), { name: "InvalidInput" });
  await assert.rejects(chat.save({}, { lables: {} }), { name: "InvalidInput" });
});

test("append", async () => {
  const chat = fresh();
  await chat.append("messages", ["one"]);
  const last = await chat.append("messages", ["two", { n: 3 }], { status: "open", labels: { a: "b" } });
  const found = await chat.load();
  assert.deepEqual(found.state, { messages: ["one", "two", { n: 3 }] });
  assert.deepEqual([last.status, last.labels], ["open", { a: "b" }]);
  await assert.rejects(fresh().save([1]).then(() => chat.append("messages", "text")), { name: "InvalidInput" });
});

test("histories are filtered, limited and continued", async () => {
  const chat = fresh();
  const ids = Array.from({ length: 8 }, (_, at) => `s-${at}`);
  for (const [at, id] of ids.entries()) {
    await chat.save({ id }, { id, status: at === 3 ? "odd" : "", labels: { "half=": at < 4 ? "1" : "2" } });
  }
  const backwards = ids.toReversed();
  assert.deepEqual(await idsOf(chat.history()), backwards);
  assert.deepEqual(await idsOf(chat.history({ limit: 3 })), backwards.slice(0, 3));
  assert.deepEqual(await idsOf(chat.history({ limit: 0 })), []);
  assert.deepEqual(await idsOf(chat.history({ limit: 2, after: "s-5" })), ["s-4", "s-3"]);
  assert.deepEqual(await idsOf(chat.history({ after: await chat.info("s-1") })), ["s-0"]);
  assert.deepEqual(await idsOf(chat.history({ status: "odd" })), ["s-3"]);
  assert.equal((await idsOf(chat.history({ status: "" }))).length, 7);
  assert.deepEqual(await idsOf(chat.history({ labels: { "half=": "1" }, limit: 2 })), ["s-3", "s-2"]);
  await assert.rejects(all(chat.history({ after: "nothing" })), { name: "NotFound", id: "nothing" });
  assert.throws(() => chat.history({ limit: -1 }), { name: "InvalidInput" });
  assert.deepEqual(await all(chat.ids()), ids);
  assert.deepEqual(await all(chat.ids({ after: "s-", limit: 2 })), ["s-0", "s-1"]);
  assert.deepEqual(await idsOf(chat.ancestors("s-7")), backwards);
  await assert.rejects(all(chat.ancestors("nothing")), { name: "NotFound" });
  assert.deepEqual(await idsOf(chat.leaves()), ["s-7"]);
  const some = await all(chat.loadMany(["s-2", "nothing", await chat.info("s-1")]));
  assert.deepEqual(some.map((each) => each.state), [{ id: "s-2" }, { id: "s-1" }]);
});

test("a list goes on page after page", async () => {
  const chat = fresh();
  const ids = Array.from({ length: 300 }, (_, at) => `s-${String(at).padStart(3, "0")}`);
  const changes = ids.map((on) => ({ name: "n", on, value: on }));
  await store.request("POST", "/scope/notes", { query: { session_id: chat.sessionId }, body: { changes } });
  assert.deepEqual(await all(chat.notedIds()), ids);
  const notes = await all(chat.notes({ on: ids.toReversed() }));
  assert.deepEqual(notes.map((each) => each.value), ids.toReversed());
  assert.deepEqual(await all(chat.notedIds({ limit: 258 })), ids.slice(0, 258));
});

test("update: in place, atomic, and every one of many counts", async () => {
  const chat = fresh();
  await chat.save({ n: 0 }, { id: "a", labels: { x: "y" } });
  const writers = Array.from({ length: 8 }, () => chat.update("a", async ({ state }) => ({ state: { n: state.n + 1 } })));
  await Promise.all(writers);
  const found = await chat.load("a");
  assert.deepEqual([found.state, found.labels], [{ n: 8 }, { x: "y" }]);
  const done = await chat.update("a", (snapshot) => ({ ...snapshot, status: "done" }));
  assert.equal(done.status, "done");
  assert.equal(await chat.update("a", () => null), null);
  await assert.rejects(chat.update("b", () => null), { name: "NotFound", id: "b" });
  const error = new Error("mine");
  await assert.rejects(
    chat.update("a", () => {
      throw error;
    }),
    error,
  );
});

test("fork, diff, restore", async () => {
  const chat = fresh();
  const first = await chat.save({ mood: "calm", n: 1 }, { labels: { a: "b" } });
  const second = await chat.save({ mood: "calm", n: 2 });
  const bold = await chat.fork(first, { patch: { mood: "bold" } });
  assert.match(bold.scopeId, /^main~[a-z0-9]{8}$/);
  const head = await bold.load();
  assert.deepEqual([head.state, head.labels], [{ mood: "bold", n: 1 }, { a: "b" }]);
  assert.deepEqual(head.forkedFrom, { scope: chat.key, id: first.id });
  const again = await bold.fork(head, { patch: (state) => ({ ...state, n: state.n + 10 }), metadata: { by: "fn" } });
  assert.match(again.scopeId, /^main~[a-z0-9]{8}$/);
  const patched = await again.load();
  assert.deepEqual([patched.state, patched.metadata, patched.parentId], [{ mood: "bold", n: 11 }, { by: "fn" }, null]);
  assert.deepEqual(patched.forkedFrom, { scope: bold.key, id: head.id });
  const away = await chat.fork(first.id, { to: `${chat.sessionId}-2`, scopeId: "copy" });
  assert.deepEqual(away.key, { ...chat.key, sessionId: `${chat.sessionId}-2`, scopeId: "copy" });
  await assert.rejects(chat.fork(first, { scopeId: "main" }), { name: "AlreadyExists" });
  await assert.rejects(chat.fork(first, { scopeId: "main", patch: (state) => state }), { name: "AlreadyExists" });
  await assert.rejects(chat.fork("nothing"), { name: "NotFound" });
  await assert.rejects(chat.load(head), { name: "InvalidInput" });
  const { changes, patch } = await chat.diff(first, second);
  assert.deepEqual(changes, [{ path: "/n", kind: "changed", before: 1, after: 2 }]);
  assert.deepEqual(patch, [{ op: "replace", path: "/n", value: 2 }]);
  const restored = await chat.restore(first);
  assert.equal(restored.parentId, first.id);
  assert.deepEqual((await chat.load()).state, { mood: "calm", n: 1 });
});

test("notes", async () => {
  const chat = fresh();
  assert.equal(await chat.note("title"), null);
  const note = await chat.setNote("title", "Lisbon", { expect: null });
  assert.deepEqual(await chat.note("title"), note);
  assert.deepEqual([note.name, note.value, note.snapshotId], ["title", "Lisbon", null]);
  assert.ok(note.updatedAt instanceof Date);
  await assert.rejects(chat.setNote("title", "Porto", { expect: null }), { name: "Conflict" });
  await chat.setNote("title", "Porto", { expect: note.revision });
  await Promise.all(Array.from({ length: 6 }, () => chat.setNote("seen", (n) => (n ?? 0) + 1)));
  assert.equal((await chat.note("seen")).value, 6);
  assert.equal(await chat.setNote("seen", () => null), null);
  await assert.rejects(chat.setNote("seen", (n) => n + 1, { expect: null }), { name: "Conflict" });
  await chat.setNote("nothing", null);
  assert.equal((await chat.note("nothing")).value, null);
  const step = await chat.save({});
  await chat.setNote("score", 5, { on: step });
  await chat.setNote("score", 6, { on: "not yet" });
  assert.deepEqual((await all(chat.notes())).map((each) => each.name), ["nothing", "seen", "title"]);
  assert.deepEqual((await all(chat.notes({ on: step }))).map((each) => each.value), [5]);
  const both = await all(chat.notes({ on: ["not yet", step.id] }));
  assert.deepEqual(both.map((each) => each.value), [6, 5]);
  assert.deepEqual(await all(chat.notes({ on: [] })), []);
  assert.deepEqual(await all(chat.notedIds()), [step.id, "not yet"].sort());
  assert.equal(await chat.deleteNote("title"), 1);
  assert.equal(await chat.deleteNote("title"), 0);
});

test("deleting and pruning", async () => {
  const chat = fresh();
  for (let n = 0; n < 5; n += 1) await chat.save({ n }, { id: `s-${n}` });
  assert.equal((await chat.prune({ keepLast: 2, dryRun: true })).count, 3);
  assert.equal((await chat.prune({ keepLast: 2 })).count, 3);
  assert.equal((await chat.prune({ olderThanS: 3_600 })).count, 0);
  await assert.rejects(chat.prune({}), { name: "InvalidInput" });
  assert.equal(await chat.deleteSnapshot("s-4"), 1);
  assert.equal(await chat.deleteSnapshot("s-4"), 0);
  assert.equal((await chat.info()).id, "s-3");
  assert.equal(await chat.delete(), 1);
  assert.equal(await chat.load(), null);
  await chat.save({});
  assert.equal(await store.deleteSession(chat.sessionId), 1);
  assert.equal(await store.deleteSession(chat.sessionId), 0);
});

test("the store: find, sessions, scopes, history, sizes, checks", async () => {
  const prefix = `team-${process.pid}/`;
  const [a, b] = [store.scope(`${prefix}a`, "planner", "graph"), store.scope(`${prefix}b`)];
  const first = await a.save({ n: 1 }, { id: "same", labels: { run: "1" } });
  const second = await b.save({ n: 2 }, { id: "same", status: "odd" });
  await b.setNote("n", 1);
  assert.deepEqual(await all(store.sessions({ prefix })), [`${prefix}a`, `${prefix}b`]);
  assert.deepEqual(await all(store.sessions({ prefix, after: `${prefix}a`, limit: 5 })), [`${prefix}b`]);
  const scopes = await all(store.scopes(undefined, { prefix }));
  assert.deepEqual(scopes, [{ key: a.key, head: first }, { key: b.key, head: second }]);
  assert.deepEqual(await all(store.scopes(b.sessionId, { kind: "graph" })), []);
  assert.deepEqual(await all(store.history({ prefix })), [second, first]);
  assert.deepEqual(await all(store.history({ prefix, after: second })), [first]);
  assert.deepEqual(await all(store.history({ prefix, after: { scope: b.key, id: "same" } })), [first]);
  assert.deepEqual(await all(store.history({ prefix, labels: { run: "1" } })), [first]);
  assert.deepEqual(await all(store.history({ prefix, status: "odd" })), [second]);
  assert.deepEqual(await store.find("same", { prefix }), second);
  assert.deepEqual(await store.find(first), first);
  assert.equal(await store.find("nothing"), null);
  assert.deepEqual((await store.scope(first.scope).load()).state, { n: 1 });
  const stats = await store.stats(a.sessionId);
  assert.deepEqual([stats.sessions, stats.scopes, stats.snapshots, stats.logicalBytes], [1, 1, 1, 7]);
  assert.ok((await store.stats()).storedBytes > 0);
  assert.deepEqual(await all(store.check()), []);
  assert.deepEqual(await all(store.repair()), []);
  assert.ok((await store.compact()) >= 0);
  assert.ok((await store.request("GET", "")).capabilities.length);
});

test("bad arguments are refused before anything is sent", async () => {
  const deaf = limpet.open("http://127.0.0.1:9", { fetch: () => assert.fail("a request was sent") });
  assert.throws(() => deaf.scope(""), { name: "InvalidInput" });
  assert.throws(() => deaf.scope(7), { name: "InvalidInput" });
  assert.throws(() => deaf.scope("a\ud800"), { name: "InvalidInput" });
  await assert.rejects(deaf.scope("a").load(""), { name: "InvalidInput" });
  await assert.rejects(deaf.scope("a").load({ id: "x" }), { name: "InvalidInput" });
  await assert.rejects(deaf.scope("a").update("x", {}), { name: "InvalidInput" });
  for (const url of ["", "localhost:7420", "sqlite:///a.db", "http://u:p@host/", "http://host/?a"]) {
    assert.throws(() => limpet.open(url), { name: "InvalidInput" });
  }
  assert.throws(() => limpet.open("http://host", { token: "a b" }), { name: "InvalidInput" });
  await assert.rejects(fresh().save({}, { id: "x".repeat(600) }), { name: "InvalidInput" });
});
