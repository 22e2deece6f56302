// AgentOS's ICheckpointStore in a Limpet store. The class is documented in agentos.d.ts.
//
// The layout is that of Python's `limpet.compat.agentos`: a checkpoint is saved in the scope of its
// graph in the session of its run, and stays there. Its labels say to which run and graph it belongs
// now, so that a move to another one is a single overwrite.

import { InvalidInput, NotFound } from "./errors.js";
import { encode } from "./json.js";
import { gathered, randomKey } from "./records.js";

const KIND = "graph";
const FACADE = "agentos"; // in the metadata: the fields that are neither state nor label
const PARTITIONS = ["input", "scratch", "artifacts", "diagnostics"];
const NO_NODE = "__fork__"; // the node of a fork of a snapshot that has none
const ID_CHARS_MAX = 512;
const NAME_CHARS_MAX = 256; // of a label
const TIME_MS_MAX = 253_402_300_799_999; // the year 9999
const TIME_MS_MIN = -62_135_596_800_000; // the year 1

export class CheckpointStore {
  #store;

  constructor(store) {
    this.#store = store;
  }

  async save(checkpoint) {
    // Encoded before anything is awaited: AgentOS goes on changing the object.
    const copy = checked(JSON.parse(encode(checkpoint, "the checkpoint")));
    const known = (await this.#named(copy.id)).find(isCheckpoint);
    await this.#commit(copy, known?.scope ?? { sessionId: copy.runId, scopeId: copy.graphId, kind: KIND });
  }

  async get(checkpointId) {
    const found = await this.#read(checkpointId);
    return found && checkpointOf(found);
  }

  async load(runId, nodeId) {
    const isAsked = ({ labels }) => labels.run_id === runId && (nodeId === undefined || labels.node_id === nodeId);
    for (const { scope, id } of await this.#newest({ run_id: runId }, isAsked)) {
      const found = await this.#store.scope(scope).load(id);
      // It may have been deleted or moved meanwhile.
      if (found !== null && isAsked(found)) return checkpointOf(found);
    }
    return null;
  }

  async latest(runId) {
    return this.load(runId);
  }

  async list(graphId, { limit, runId } = {}) {
    // A run has fewer checkpoints than a graph, so the query is by run if one is given.
    const labels = runId === undefined ? { graph_id: graphId } : { run_id: runId };
    const found = await this.#newest(labels, (info) => info.labels.graph_id === graphId);
    return (limit > 0 ? found.slice(0, limit) : found).map(metadataOf);
  }

  async delete(checkpointId) {
    for (const { scope } of (await this.#named(checkpointId)).filter(isCheckpoint)) {
      await this.#store.scope(scope).deleteSnapshot(checkpointId);
    }
  }

  async fork(checkpointId, patchState) {
    const patch = partitionsOf(patchState);
    const source = await this.#read(checkpointId);
    if (source === null) {
      throw new NotFound(`the checkpoint was not found. checkpointId=\`${checkpointId}\``, { id: checkpointId });
    }
    const before = checkpointOf(source);
    // The fork stays with the tenant of its source.
    const runId = source.scope.sessionId.replace(/[^/]*$/, randomKey());
    const fork = {
      ...before,
      id: randomKey(),
      runId,
      nodeId: before.nodeId || NO_NODE,
      timestamp: Date.now(),
      state: patch === undefined ? before.state : patched(before.state, patch),
      forkedFrom: { checkpointId: source.id, runId: before.runId, ...(patch && { patchState: patch }) },
    };
    // In the kind of its source, so that the program that uses this kind sees it.
    const scope = { sessionId: runId, scopeId: fork.graphId, kind: source.scope.kind };
    await this.#commit(fork, scope, { scope: source.scope, id: source.id });
    return runId;
  }

  async #commit(checkpoint, scope, forkedFrom) {
    const { id, graphId, runId, nodeId, state, ...rest } = checkpoint;
    const { timestamp } = rest;
    const text = JSON.stringify(state);
    const size = { state_size: text.length, state_bytes: new TextEncoder().encode(text).length };
    await this.#store.scope(scope).save(state, {
      id,
      overwrite: true,
      labels: { run_id: runId, graph_id: graphId, node_id: nodeId },
      metadata: { ...size, [FACADE]: rest },
      createdAt: timestamp >= TIME_MS_MIN && timestamp <= TIME_MS_MAX ? new Date(timestamp) : undefined,
      forkedFrom,
    });
  }

  /** Return the snapshots of an id in all scopes, the last saved first: ids are unique in a scope only. */
  async #named(id) {
    checkName("id", id, ID_CHARS_MAX);
    return gathered(this.#store.history({ id }));
  }

  /** Return the checkpoint of an id, else the last snapshot of that id by another program. */
  async #read(id) {
    const named = await this.#named(id);
    const chosen = named.find(isCheckpoint) ?? named[0];
    return chosen === undefined ? null : this.#store.scope(chosen.scope).load(id);
  }

  /** Return the checkpoints with these labels: the greatest timestamp first, of equal ones the last saved. */
  async #newest(labels, isAsked) {
    const found = await gathered(this.#store.history({ labels }));
    return found.filter((info) => isCheckpoint(info) && isAsked(info)).sort((a, b) => factsOf(b).timestamp - factsOf(a).timestamp);
  }
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Return whether a snapshot is a checkpoint, and not another one with such a label or id. */
function isCheckpoint({ scope, metadata }) {
  return scope.kind === KIND || isObject(metadata[FACADE]);
}

function checked(checkpoint) {
  checkName("id", checkpoint.id, ID_CHARS_MAX);
  for (const name of ["graphId", "runId", "nodeId"]) checkName(name, checkpoint[name], NAME_CHARS_MAX);
  if (typeof checkpoint.timestamp !== "number") {
    throw new InvalidInput(`the timestamp must be a number of milliseconds. type=\`${typeof checkpoint.timestamp}\``);
  }
  if (!isObject(checkpoint.state)) throw new InvalidInput("the state must be an object");
  return checkpoint;
}

function checkName(name, value, charsMax) {
  if (typeof value !== "string" || value === "" || value.length > charsMax) {
    throw new InvalidInput(`${name} must be a text of 1 to ${charsMax} characters`);
  }
}

/** Return the fields of a checkpoint except its state; a snapshot of another program has defaults. */
function factsOf({ scope, id, labels, metadata, createdAt }) {
  const { timestamp, ...rest } = isObject(metadata[FACADE]) ? metadata[FACADE] : {};
  return {
    id,
    graphId: labels.graph_id ?? scope.scopeId,
    runId: labels.run_id ?? scope.sessionId,
    nodeId: labels.node_id ?? "",
    timestamp: typeof timestamp === "number" ? timestamp : createdAt.getTime(),
    rest,
  };
}

function checkpointOf(found) {
  const { rest, ...facts } = factsOf(found);
  return { ...facts, state: found.state, nodeResults: {}, visitedNodes: [], pendingEdges: [], ...rest };
}

function metadataOf(info) {
  const { id, runId, graphId, nodeId, timestamp, rest } = factsOf(info);
  const { state_size: size, state_bytes: bytes } = info.metadata;
  // Another program may have replaced the state.
  const stateSize = bytes === info.size && Number.isInteger(size) ? size : info.size;
  return { id, runId, graphId, nodeId, timestamp, stateSize, hasMemorySnapshot: "memorySnapshot" in rest };
}

/** Return a copy of the four partitions of a patch. */
function partitionsOf(patch) {
  if (patch === undefined || patch === null) return undefined;
  if (!isObject(patch)) throw new InvalidInput(`patchState must be an object. type=\`${typeof patch}\``);
  const given = PARTITIONS.filter((name) => patch[name] !== undefined && patch[name] !== null);
  for (const name of given) {
    if (!isObject(patch[name])) throw new InvalidInput(`a partition must be an object. partition=\`${name}\``);
  }
  return JSON.parse(encode(Object.fromEntries(given.map((name) => [name, patch[name]])), "patchState"));
}

function patched(state, patch) {
  if (!isObject(state)) throw new InvalidInput("only an object can be patched");
  const changed = Object.entries(patch).map(([name, part]) => {
    const before = state[name] ?? {};
    if (!isObject(before)) throw new InvalidInput(`only an object can be patched. partition=\`${name}\``);
    return [name, { ...before, ...part }];
  });
  return { ...state, ...Object.fromEntries(changed) };
}
