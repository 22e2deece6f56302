// What the adapters of conversations share, against a real server.

import assert from "node:assert/strict";
import test from "node:test";
import { AlreadyExists, Corrupt, open } from "../../clients/js/src/index.js";
import { Log } from "../../clients/js/src/logs.js";

const store = open(process.env.LIMPET_TEST_URL);
const scopeOf = (name) => store.scope(`logs-${name}`, "main", "conversation");
const logOf = (name) => new Log(scopeOf(name), "items", "openai", (item) => item.id);

test("it is a list, marked with its framework", async () => {
  const log = logOf("list");
  assert.equal(await log.read(), null);
  assert.equal(await log.own(), null);
  assert.equal(await log.pop(), undefined);
  await log.append([]);
  assert.equal(await log.scope.info(), null);

  await log.append([{ id: "a" }, {}, { id: "a" }, {}]);
  await log.append([{ id: "a" }, { id: "b" }]);
  assert.deepEqual(await log.read(), [{ id: "a" }, {}, {}, { id: "b" }]);
  assert.deepEqual(await log.pop(), { id: "b" });
  const before = (await log.own()).id;
  await log.append([{ id: "a" }]);
  assert.equal((await log.own()).id, before);
  await log.write([]);
  assert.deepEqual(await log.read(), []);
  for await (const each of log.scope.history()) assert.deepEqual(each.metadata, { openai: true });
});

test("writing a list that goes on appends to it", async () => {
  const log = logOf("write");
  for (const items of [["a"], ["a", { b: 1 }], ["a", { b: 2 }], ["a", { b: 2 }], []]) {
    await log.write(items);
    assert.deepEqual(await log.read(), items);
  }
  const sizes = [];
  for await (const each of log.scope.loadMany(log.scope.ids())) sizes.push(each.state.items.length);
  assert.deepEqual(sizes, [1, 2, 2, 0]);
});

test("several writers lose nothing, store nothing twice, and keep their order", async () => {
  const logs = [logOf("race"), logOf("race"), logOf("race")];
  const added = logs.flatMap((log, of) =>
    Array.from({ length: 8 }, (_, at) => log.append([{ id: `${of}-${at}` }, { id: `shared-${at}` }])),
  );
  await Promise.all(added);
  const ids = (await logOf("race").read()).map((item) => item.id);
  assert.equal(ids.length, 32);
  for (const of of [0, 1, 2]) {
    const own = ids.filter((id) => id.startsWith(of));
    assert.deepEqual(own, Array.from({ length: 8 }, (_, at) => `${of}-${at}`));
  }
});

test("what was deleted meanwhile is appended again", async () => {
  const log = logOf("deleted");
  await log.append([{ id: "a" }]);
  await log.scope.delete();
  await log.append([{ id: "a" }]);
  assert.deepEqual(await log.read(), [{ id: "a" }]);
});

const verbs = (log) => [() => log.read(), () => log.own(), () => log.append([{}]), () => log.write([{}]), () => log.pop()];

test("what another framework has saved is neither read nor changed", async () => {
  const log = logOf("foreign");
  const { id } = await log.scope.save({ items: [{}] }, { metadata: { claude: { summary: "s" } } });
  for (const each of verbs(log)) {
    await assert.rejects(each, (error) => error instanceof AlreadyExists && /conversation of the Claude Agent SDK, not of the OpenAI/.test(error.message));
  }
  assert.equal((await log.scope.info()).id, id);
});

test("what is no list is not changed, and a list without a mark is", async () => {
  const log = logOf("odd");
  await log.scope.save({ items: "mine" });
  for (const each of verbs(log)) await assert.rejects(each, Corrupt);
  await log.scope.save({ items: [{ id: "a" }] });
  await log.append([{ id: "a" }, { id: "b" }]);
  const { state, metadata } = await log.scope.load();
  assert.deepEqual([state.items, metadata], [[{ id: "a" }, { id: "b" }], { openai: true }]);
});
