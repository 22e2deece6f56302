// AgentOS's own tests of its store, by the names that they have there, and what else its store does.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { CheckpointStore } from "../../clients/js/src/agentos.js";
import { InvalidInput, NotFound, open } from "../../clients/js/src/index.js";

const store = open(process.env.LIMPET_TEST_URL);
const checkpoints = new CheckpointStore(store);
const fresh = (what) => `${what}-${crypto.randomUUID()}`;

function makeCheckpoint(changes = {}) {
  return {
    id: fresh("c"),
    graphId: fresh("g"),
    runId: fresh("r"),
    nodeId: "a",
    timestamp: 1_794_701_072_000,
    state: {
      input: { q: "hello" },
      scratch: { a: 1, nested: { x: 1, y: 2 }, list: [1, 2] },
      artifacts: { a: "é😀" },
      diagnostics: { totalTokensUsed: 0, nodeTimings: {}, checkpointsSaved: 0 },
    },
    nodeResults: { a: { effectClass: "pure", output: "a-out", durationMs: 8 } },
    visitedNodes: ["a"],
    skippedNodes: [],
    pendingEdges: ["e1"],
    ...changes,
  };
}

/** Save checkpoints of one run and one graph unless told otherwise, in the order given. */
async function saveSome(...changes) {
  const names = { runId: fresh("r"), graphId: fresh("g") };
  const made = changes.map((each) => makeCheckpoint({ ...names, ...each }));
  for (const each of made) await checkpoints.save(each);
  return made;
}

describe("save and load", () => {
  test("saves and loads a checkpoint by runId", async () => {
    const [saved] = await saveSome({});
    const found = await checkpoints.load(saved.runId);
    assert.deepEqual([found.id, found.runId], [saved.id, saved.runId]);
  });

  test("gets a checkpoint by exact checkpoint id", async () => {
    const [saved] = await saveSome({}, {});
    assert.deepEqual(await checkpoints.get(saved.id), saved);
  });

  test("returns null for an unknown runId", async () => {
    assert.equal(await checkpoints.load(fresh("r")), null);
  });

  test("loads a checkpoint by runId and nodeId", async () => {
    const [a] = await saveSome({ nodeId: "a", timestamp: 1 }, { nodeId: "b", timestamp: 2 });
    assert.deepEqual(await checkpoints.load(a.runId, "a"), a);
    assert.equal(await checkpoints.load(a.runId, ""), null);
  });

  test("returns the checkpoint with the highest timestamp", async () => {
    const [newest] = await saveSome({ timestamp: 300 }, { timestamp: 100 }, { timestamp: 200 });
    assert.deepEqual(await checkpoints.latest(newest.runId), newest);
  });
});

describe("list", () => {
  test("lists checkpoint metadata for a graphId", async () => {
    const [mine] = await saveSome({ runId: fresh("r") }, { graphId: fresh("g") });
    const other = makeCheckpoint({ graphId: mine.graphId });
    await checkpoints.save(other);
    const found = await checkpoints.list(mine.graphId);
    assert.deepEqual(new Set(found.map((each) => each.id)), new Set([mine.id, other.id]));
    assert.deepEqual(found[0], {
      id: other.id,
      runId: other.runId,
      graphId: other.graphId,
      nodeId: "a",
      timestamp: other.timestamp,
      stateSize: JSON.stringify(other.state).length,
      hasMemorySnapshot: false,
    });
  });

  test("respects the limit option", async () => {
    const [one] = await saveSome(...[0, 1, 2, 3, 4].map((timestamp) => ({ timestamp })));
    const times = async (limit) => (await checkpoints.list(one.graphId, { limit })).map((each) => each.timestamp);
    assert.deepEqual(await times(3), [4, 3, 2]);
    for (const limit of [undefined, null, 0, -1, Number.NaN, Infinity]) assert.equal((await times(limit)).length, 5);
  });

  test("filters by runId when provided", async () => {
    const [mine] = await saveSome({}, { runId: fresh("r") });
    const found = await checkpoints.list(mine.graphId, { runId: mine.runId });
    assert.deepEqual(found.map((each) => each.id), [mine.id]);
  });
});

describe("delete", () => {
  test("deletes a checkpoint by id", async () => {
    const [saved] = await saveSome({});
    await checkpoints.delete(saved.id);
    assert.equal(await checkpoints.load(saved.runId), null);
  });

  test("silently succeeds when the id does not exist", async () => {
    assert.equal(await checkpoints.delete(fresh("c")), undefined);
  });
});

describe("fork", () => {
  test("creates a new run with a fresh runId", async () => {
    const [source] = await saveSome({ skippedNodes: ["c"], memorySnapshot: { reads: [], pendingWrites: [] } });
    const runId = await checkpoints.fork(source.id);
    const found = await checkpoints.latest(runId);
    assert.notEqual(runId, source.runId);
    const { forkedFrom, ...copy } = found;
    assert.deepEqual(copy, { ...source, runId, id: found.id, timestamp: found.timestamp });
    assert.deepEqual(forkedFrom, { checkpointId: source.id, runId: source.runId });
    assert.notEqual(found.id, source.id);
    assert.ok(Math.abs(Date.now() - found.timestamp) < 60_000);
  });

  test("applies patchState to the forked checkpoint", async () => {
    const [source] = await saveSome({});
    const patch = { scratch: { a: 9, nested: { x: 9 } }, artifacts: null, diagnostics: undefined, iteration: 3 };
    const promised = checkpoints.fork(source.id, patch);
    patch.scratch.a = "changed too late";
    const found = await checkpoints.latest(await promised);
    assert.deepEqual(found.state, { ...source.state, scratch: { a: 9, nested: { x: 9 }, list: [1, 2] } });
    assert.deepEqual(await checkpoints.get(source.id), source);
    await assert.rejects(checkpoints.fork(source.id, { scratch: "text" }), InvalidInput);
  });

  test("throws when the checkpoint does not exist", async () => {
    await assert.rejects(checkpoints.fork(fresh("c")), (error) => error instanceof NotFound && /not found/.test(error.message));
  });
});

describe("what AgentOS's store gets wrong", () => {
  test("of equal timestamps the last saved is the latest", async () => {
    const [, last] = await saveSome({}, {});
    assert.equal((await checkpoints.latest(last.runId)).id, last.id);
  });

  test("changing what was saved, or what was returned, does not change the store", async () => {
    const saved = makeCheckpoint();
    const before = structuredClone(saved);
    const promised = checkpoints.save(saved);
    saved.nodeResults.b = { effectClass: "write" };
    await promised;
    (await checkpoints.get(saved.id)).state.scratch.a = 7;
    assert.deepEqual(await checkpoints.get(saved.id), before);
  });

  test("a checkpoint that moves to another run and graph leaves the old ones, in one step", async () => {
    const [before] = await saveSome({});
    const after = { ...before, runId: fresh("r"), graphId: fresh("g") };
    await checkpoints.save(after);
    assert.equal(await checkpoints.latest(before.runId), null);
    assert.deepEqual(await checkpoints.list(before.graphId), []);
    assert.deepEqual(await checkpoints.latest(after.runId), after);
  });

  test("what cannot be stored is refused with its path", async () => {
    for (const changes of [{ id: "" }, { runId: "" }, { timestamp: "1" }, { state: null }]) {
      await assert.rejects(checkpoints.save(makeCheckpoint(changes)), InvalidInput);
    }
    const bad = makeCheckpoint({ nodeResults: { a: { output: 1n } } });
    await assert.rejects(checkpoints.save(bad), (error) => error.path === "/nodeResults/a/output");
  });

  test("snapshots of other programs are returned and can be forked", async () => {
    const id = fresh("s");
    await store.scope("acme/chat", "main", "agent").save({ input: { n: 1 } }, { id });
    const found = await checkpoints.get(id);
    assert.deepEqual([found.runId, found.graphId, found.nodeId, found.visitedNodes], ["acme/chat", "main", "", []]);
    const runId = await checkpoints.fork(id, { input: { n: 2 } });
    assert.match(runId, /^acme\/./);
    const fork = await store.scope(runId, "main", "agent").load();
    assert.deepEqual([fork.state, fork.forkedFrom.id], [{ input: { n: 2 } }, id]);
  });
});
