// LangGraph.js's checkpoints in a Limpet store. The class is documented in langgraph.d.ts.
//
// The layout is that of Python's LimpetSaver, so that a thread can be continued in either language:
// the thread is the session, the namespace the scope, the state is the checkpoint without its id, and
// what a task wrote is a note on its checkpoint. Values are readable JSON; what is not JSON is an
// object whose first key is a tag (`$message`, `$bytes`, ...).

import {
  BaseCheckpointSaver,
  getCheckpointId,
  INTERRUPT,
  maxChannelVersion,
  TASKS,
  WRITES_IDX_MAP,
} from "@langchain/langgraph-checkpoint";
import { contend } from "./client.js";
import { Conflict, Corrupt, InvalidInput, Unavailable } from "./errors.js";
import { gathered } from "./records.js";

const KIND = "thread";
const FACADE = "langgraph"; // in the metadata of a snapshot: the metadata of the checkpoint
const RUN = "run_id";
const LABEL_CHARS_MAX = 256;
const PAGE_STATES = 16;
const HEADS_MAX = 4096;
const DECODED_MAX = 20_000;
const FIRST_VERSION = `${"1".padStart(32, "0")}.${"0".repeat(16)}`;

export class LimpetSaver extends BaseCheckpointSaver {
  #store;
  // The last known head of each scope. If it is out of date the commit fails, and is tried again.
  #heads = new Map();
  #shares;

  constructor(store, serde) {
    super(serde);
    this.#store = store;
    this.#shares = serde === undefined; // another one may decode a list differently than its items
  }

  async getTuple(config) {
    if (config.configurable?.thread_id === undefined) return undefined;
    const scope = this.#scope(config);
    const wanted = getCheckpointId(config) || undefined;
    const found = await scope.load(wanted);
    if (wanted === undefined) this.#remember(scope, found);
    if (found === null) return undefined;
    return this.#tuple(found, await gathered(scope.notes({ on: found.id })));
  }

  async put(config, checkpoint, metadata, newVersions) {
    const scope = this.#scope(config);
    const parent = config.configurable.checkpoint_id || null;
    const [state, meta] = await Promise.all([
      this.#state(checkpoint, parent === null ? newVersions : undefined),
      this.#dumped(metadata),
    ]);
    await this.#commit(scope, state, {
      id: checkpoint.id,
      parent: parent === checkpoint.id ? null : parent,
      overwrite: true,
      status: "completed",
      labels: labelsOf(metadata),
      metadata: { [FACADE]: meta },
      createdAt: isMoment(checkpoint.ts) ? checkpoint.ts : undefined,
    });
    return configOf(scope, checkpoint.id);
  }

  async putWrites(config, writes, taskId) {
    const scope = this.#scope(config);
    const on = config.configurable.checkpoint_id;
    if (on === undefined) throw new InvalidInput("writes belong to a checkpoint: the config needs a checkpoint_id");
    if (writes.length === 0) return;
    const items = await Promise.all(
      writes.map(async ([channel, value], at) => [
        Object.hasOwn(WRITES_IDX_MAP, channel) ? WRITES_IDX_MAP[channel] : at,
        channel,
        typedIn(channel, await this.#dumped(value)),
      ]),
    );
    const first = merged([], items);
    try {
      // Nearly always these are the first writes of the task.
      await scope.setNote(taskId, { task_path: "", writes: first }, { on, expect: null });
    } catch (error) {
      // If the answer was lost, they may be there already: then there is nothing to merge.
      const isLost = error instanceof Unavailable && !error.outcomeKnown;
      if (!isLost && !(error instanceof Conflict)) throw error;
      await scope.setNote(taskId, (before) => withWrites(before, items), { on });
    }
  }

  async *list(config, { limit, before, filter } = {}) {
    let left = limit ?? Infinity;
    const ceiling = before && getCheckpointId(before);
    const only = config.configurable?.checkpoint_id;
    const isAsked = (id) => (!ceiling || id < ceiling) && (!only || id === only);
    const decoded = this.#shares ? new Map() : undefined;
    for await (const page of this.#pages(config, filter, isAsked)) {
      if (left <= 0) return;
      const found = await this.#read(page.slice(0, left), decoded);
      left -= found.length;
      yield* found;
    }
  }

  async deleteThread(threadId) {
    const sessionId = sessionOf(threadId);
    const scopes = (await gathered(this.#store.scopes(sessionId))).map((each) => each.key);
    const ours = scopes.filter((key) => namespaceOf(key) !== undefined);
    for (const key of ours) this.#heads.delete(nameOf(key));
    if (ours.length === scopes.length) await this.#store.deleteSession(sessionId);
    else for (const key of ours) await this.#store.scope(key).delete();
  }

  /** A count and a random part, as in Python: no two branches of a thread share a version. */
  getNextVersion(current) {
    if (typeof current === "number") return current + 1; // of a thread that began elsewhere: they must compare
    const count = Number.parseInt(current ?? "0", 10);
    const random = Array.from(crypto.getRandomValues(new Uint8Array(16)), (each) => each % 10).join("");
    return `${String(count + 1).padStart(32, "0")}.0.${random}`;
  }

  #scope(config) {
    const { thread_id: threadId, checkpoint_ns: namespace } = config.configurable ?? {};
    if (threadId === undefined || threadId === null) throw new InvalidInput("the config has no thread_id");
    return this.#store.scope(sessionOf(threadId), namespace ? `:${namespace}` : "main", KIND);
  }

  // Saving

  /** Save or replace a checkpoint. It becomes the head unless the head has a greater id. */
  async #commit(scope, state, options) {
    let seen;
    const attempt = async () => {
      const head = this.#heads.get(nameOf(scope)) ?? this.#remember(scope, await scope.info());
      seen = head.revision;
      const becomesHead = head.id === null || options.id >= head.id;
      const stored = await scope.save(state, { ...options, head: becomesHead, expect: seen });
      if (becomesHead) this.#remember(scope, stored);
    };
    await contend(attempt, async () => this.#remember(scope, await scope.info()).revision !== seen);
  }

  #remember(scope, info) {
    const head = { id: info?.id ?? null, revision: info?.revision ?? null };
    const name = nameOf(scope);
    this.#heads.delete(name);
    this.#heads.set(name, head);
    if (this.#heads.size > HEADS_MAX) this.#heads.delete(this.#heads.keys().next().value);
    return head;
  }

  /**
   * Return the state of a checkpoint. Channels come first, so that two states with a growing list
   * have a long common beginning.
   *
   * Without a parent only the channels in `newVersions` are stored: LangGraph says of the others
   * that an earlier checkpoint has them, and there is none.
   */
  async #state(checkpoint, newVersions) {
    const { id: _, channel_values: values, ...rest } = checkpoint;
    const isStored = (name) => newVersions === undefined || Object.hasOwn(newVersions, name);
    const stored = Object.entries(values).filter(([name]) => isStored(name));
    const trees = stored.map(async ([name, value]) => [name, typedIn(name, await this.#dumped(value))]);
    const others = mapped(rest, toStored); // before anything is awaited: the caller may change it then
    return { channel_values: Object.fromEntries(await Promise.all(trees)), ...others };
  }

  async #dumped(value) {
    const [type, data] = await this.serde.dumpsTyped(value);
    const tree = type === "json" ? parsed(data) : undefined;
    if (tree !== undefined) return toStored(tree);
    return type === "bytes" ? { $bytes: toBase64(data) } : { $sealed: [type, toBase64(data)] };
  }

  // Reading

  /** `decoded`: the items that a list has met, by their text. Most messages are in many checkpoints of a thread. */
  async #loaded(tree, path, decoded) {
    if (decoded !== undefined && Array.isArray(tree)) {
      return Promise.all(tree.map((item, at) => this.#item(item, `${path}/${at}`, decoded)));
    }
    const tag = tagOf(tree);
    if (tag === "$sealed") return this.#unsealed(tree, path);
    if (tag === "$bytes") return this.serde.loadsTyped("bytes", fromBase64(tree.$bytes));
    return this.serde.loadsTyped("json", JSON.stringify(fromStored(tree, path)));
  }

  #item(tree, path, decoded) {
    if (typeof tree !== "object" || tree === null) return tree;
    const text = JSON.stringify(tree);
    if (!decoded.has(text)) {
      if (decoded.size >= DECODED_MAX) decoded.clear();
      decoded.set(text, this.#loaded(tree, path));
    }
    return decoded.get(text);
  }

  async #unsealed({ $sealed: [type, body] }, path) {
    try {
      return await this.serde.loadsTyped(type, fromBase64(body));
    } catch (cause) {
      throw new InvalidInput(`a stored value needs the serializer that it was saved with. path=\`${path}\``, { cause });
    }
  }

  async #tuple(found, notes, decoded) {
    const { scope, id, parentId } = found;
    const metadata = FACADE in found.metadata ? await this.#loaded(found.metadata[FACADE], "metadata") : {};
    const checkpoint = FACADE in found.metadata ? await this.#checkpoint(found, decoded) : foreignCheckpoint(found);
    if (checkpoint.v < 4 && parentId !== null) await this.#addPendingSends(checkpoint, scope, parentId);
    return {
      config: configOf(scope, id),
      checkpoint,
      metadata,
      ...(parentId === null ? {} : { parentConfig: configOf(scope, parentId) }),
      pendingWrites: await this.#writes(notes),
    };
  }

  async #checkpoint({ id, state, createdAt }, decoded) {
    if (typeof state?.channel_values !== "object" || state.channel_values === null) {
      throw new Corrupt(`the state is not that of a checkpoint. id=\`${id}\``, { id });
    }
    const { channel_values: trees, v = 4, ts = createdAt.toISOString(), delta_history: _, ...rest } = state;
    const loaded = Object.entries(trees).map(async ([name, tree]) => [
      name,
      await this.#loaded(tree, `channel_values/${name}`, decoded),
    ]);
    const values = Object.fromEntries(await Promise.all(loaded));
    return { v, id, ts, channel_values: values, ...fromStored(rest, "checkpoint") };
  }

  /** Before version 4 what was to be sent was not in the checkpoint but in the writes of its parent. */
  async #addPendingSends(checkpoint, scope, parentId) {
    const notes = await gathered(this.#store.scope(scope).notes({ on: parentId }));
    const writes = await this.#writes(notes);
    const versions = Object.values(checkpoint.channel_versions);
    const last = versions.length ? maxChannelVersion(...versions) : this.getNextVersion(undefined);
    checkpoint.channel_values[TASKS] = writes.filter(([, channel]) => channel === TASKS).map(([, , value]) => value);
    checkpoint.channel_versions[TASKS] = last;
  }

  /** Return the writes of notes in the order in which LangGraph applies them. */
  async #writes(notes) {
    const found = notes.flatMap(({ name, value }) => {
      const writes = isWrites(value) ? value.writes : [];
      return writes.map(([at, channel, tree]) => ({ path: value.task_path, name, at, channel, tree }));
    });
    found.sort((a, b) => compare(a.path, b.path) || compare(a.name, b.name) || a.at - b.at);
    return Promise.all(
      found.map(async ({ name, channel, tree }) => [name, channel, await this.#loaded(tree, `writes/${channel}`)]),
    );
  }

  /** Yield pages of `{scope, id}`: of a thread by descending id; of all threads, the last saved first. */
  async *#pages(config, filter, isAsked) {
    const isOfThread = (config.configurable?.thread_id ?? null) !== null;
    const refs = isOfThread ? await this.#ofThread(config, filter, isAsked) : this.#everywhere(config, filter, isAsked);
    let page = [];
    for await (const ref of refs) {
      page.push(ref);
      if (page.length < PAGE_STATES) continue;
      yield page;
      page = [];
    }
    if (page.length) yield page;
  }

  async *#everywhere(config, filter, isAsked) {
    const wanted = config.configurable?.checkpoint_ns;
    for await (const info of this.#store.history({ labels: labelsOf(filter) })) {
      const found = namespaceOf(info.scope);
      if (found === undefined || found !== (wanted ?? found) || !isAsked(info.id)) continue;
      if (await this.#matches(info, filter)) yield info;
    }
  }

  async #ofThread(config, filter, isAsked) {
    const one = this.#scope(config);
    const isOne = (config.configurable.checkpoint_ns ?? null) !== null;
    const listed = isOne ? [one] : await gathered(this.#store.scopes(one.sessionId, { kind: KIND }));
    const refs = [];
    for (const { key } of listed.filter((each) => namespaceOf(each.key) !== undefined)) {
      const scope = this.#store.scope(key);
      if (Object.keys(filter ?? {}).length === 0) {
        for await (const id of scope.ids()) if (isAsked(id)) refs.push({ scope: key, id });
        continue;
      }
      for await (const info of scope.history({ labels: labelsOf(filter) })) {
        if (isAsked(info.id) && (await this.#matches(info, filter))) refs.push({ scope: key, id: info.id });
      }
    }
    return refs.sort((a, b) => compare(b.id, a.id));
  }

  async #matches(info, filter) {
    const wanted = Object.entries(filter ?? {});
    if (wanted.length === 0) return true;
    const found = FACADE in info.metadata ? await this.#loaded(info.metadata[FACADE], "metadata") : {};
    return wanted.every(([name, value]) => JSON.stringify(found[name]) === JSON.stringify(value));
  }

  /** Return the tuples of a page, in its order; what was deleted meanwhile is left out. */
  async #read(refs, decoded) {
    const tuples = new Map();
    for (const [name, some] of grouped(refs)) {
      const scope = this.#store.scope(some[0].scope);
      const ids = some.map((ref) => ref.id);
      const [found, notes] = await Promise.all([gathered(scope.loadMany(ids)), gathered(scope.notes({ on: ids }))]);
      for (const each of found) {
        const own = notes.filter((note) => note.snapshotId === each.id);
        tuples.set(`${name} ${each.id}`, await this.#tuple(each, own, decoded));
      }
    }
    return refs.map((ref) => tuples.get(`${nameOf(ref.scope)} ${ref.id}`)).filter((each) => each !== undefined);
  }
}

function grouped(refs) {
  const groups = new Map();
  for (const ref of refs) {
    const name = nameOf(ref.scope);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(ref);
  }
  return groups;
}

function compare(a, b) {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

// Addresses

/** Return the session of a thread: its id; with one more `!` if it is nothing but those, since none is empty. */
function sessionOf(threadId) {
  const id = String(threadId);
  return /^!*$/.test(id) ? `${id}!` : id;
}

function threadOf(sessionId) {
  return /^!+$/.test(sessionId) ? sessionId.slice(1) : sessionId;
}

function nameOf({ sessionId, scopeId }) {
  return JSON.stringify([sessionId, scopeId]);
}

/** Return the namespace of a scope; undefined if it is not LangGraph's. */
function namespaceOf({ scopeId, kind }) {
  if (kind !== KIND) return undefined;
  if (scopeId === "main") return "";
  return scopeId.startsWith(":") ? scopeId.slice(1) : undefined;
}

function configOf({ sessionId, scopeId }, id) {
  const namespace = scopeId === "main" ? "" : scopeId.replace(/^:/, "");
  return { configurable: { thread_id: threadOf(sessionId), checkpoint_ns: namespace, checkpoint_id: id } };
}

function labelsOf(metadata) {
  const run = metadata?.[RUN];
  return typeof run === "string" && run.length <= LABEL_CHARS_MAX && !run.includes("\0") ? { [RUN]: run } : undefined;
}

function isMoment(ts) {
  return typeof ts === "string" && /(Z|[+-]\d\d:\d\d)$/.test(ts) && !Number.isNaN(Date.parse(ts));
}

/** Return the checkpoint of a snapshot that another application saved: its keys are the channels. */
function foreignCheckpoint({ id, state, createdAt }) {
  const isObject = typeof state === "object" && state !== null && !Array.isArray(state);
  const values = isObject ? state : { __root__: state };
  const versions = Object.fromEntries(Object.keys(values).map((name) => [name, FIRST_VERSION]));
  const ts = createdAt.toISOString();
  return { v: 4, id, ts, channel_values: values, channel_versions: versions, versions_seen: {} };
}

// Pending writes

function isWrites(value) {
  return typeof value?.task_path === "string" && Array.isArray(value.writes);
}

/** Earlier writes at the same index stay; errors, interrupts and resume values are replaced. */
function merged(before, items) {
  const found = new Map(before.map((item) => [item[0], item]));
  for (const item of items) if (item[0] < 0 || !found.has(item[0])) found.set(item[0], item);
  return [...found.values()].sort((a, b) => a[0] - b[0]);
}

function withWrites(before, items) {
  if (before !== null && !isWrites(before)) throw new Conflict("the note of a task is not a note of writes");
  const after = { task_path: "", ...before, writes: merged(before?.writes ?? [], items) };
  return JSON.stringify(after) === JSON.stringify(before) ? null : after;
}

// Values. A tree is what the serializer gives as JSON; `$` begins the first key of what is not JSON.

const MESSAGES = ["langchain_core", "messages"];
const SEND = "langgraph.types:Send";
const INTERRUPTION = "langgraph.types:Interrupt";

function parsed(data) {
  try {
    return JSON.parse(typeof data === "string" ? data : new TextDecoder().decode(data));
  } catch {
    return undefined; // a serializer of the caller's, which encrypts and calls that JSON
  }
}

/** Return the tag of a tree: its first key, if that is one. */
function tagOf(tree) {
  if (typeof tree !== "object" || tree === null || Array.isArray(tree)) return undefined;
  const [first] = Object.keys(tree);
  return first?.startsWith("$") ? first : undefined;
}

/** Return Sends and Interrupts as Python stores them: the serializer makes plain objects of them. */
function typedIn(channel, tree) {
  if (channel !== TASKS && channel !== INTERRUPT) return tree;
  const typed = channel === TASKS ? storedSend : storedInterrupt;
  return Array.isArray(tree) ? tree.map(typed) : typed(tree);
}

function storedSend(tree) {
  if (!hasExactly(tree, ["args", "node"])) return tree;
  const { node, args: arg } = tree;
  return { $object: SEND, fields: { node, arg, timeout: null } };
}

function storedInterrupt(tree) {
  if (!hasExactly(tree, ["id", "value"])) return tree;
  return { $object: INTERRUPTION, fields: { value: tree.value, id: tree.id } };
}

function hasExactly(tree, names) {
  return typeof tree === "object" && tree !== null && Object.keys(tree).sort().join() === names.join();
}

function toStored(tree) {
  if (Array.isArray(tree)) return tree.map(toStored);
  if (typeof tree !== "object" || tree === null) return tree;
  if (tree.lc === 1 && tree.type === "constructor") {
    return isMessageId(tree.id) ? storedMessage(tree) : { $js: mapped(tree, toStored) };
  }
  if (tree.lc === 2 && typeof tree.type === "string") return storedRecord(tree);
  const members = mapped(tree, toStored);
  return tagOf(members) === undefined ? members : { $plain: members };
}

function mapped(tree, change) {
  return Object.fromEntries(Object.entries(tree).map(([name, each]) => [name, change(each, name)]));
}

function isMessageId(id) {
  return Array.isArray(id) && id.length === 3 && id[0] === MESSAGES[0] && id[1] === MESSAGES[1];
}

function storedMessage({ id, kwargs }) {
  const plain = Object.fromEntries(Object.entries(kwargs).filter(([, each]) => !isUndefined(each)));
  const stored = mapped(plain, toStored);
  // Only in a `$message+` values with tags are looked for.
  const tag = JSON.stringify(stored) === JSON.stringify(plain) ? "$message" : "$message+";
  return { [tag]: id[2], ...stored };
}

function isUndefined(tree) {
  return tree?.lc === 2 && tree.type === "undefined";
}

function storedRecord(tree) {
  const items = tree.args?.[0];
  const name = Array.isArray(items) ? tree.id?.[0] : undefined; // not a RegExp or an Error
  if (name === "Set") return { $set: items.map(toStored) };
  if (name === "Map") return { $map: items.map(toStored) };
  if (name === "Uint8Array") return { $bytes: toBase64(Uint8Array.from(items)) };
  return { $js: mapped(tree, toStored) };
}

function fromStored(tree, path) {
  if (Array.isArray(tree)) return tree.map((each, at) => fromStored(each, `${path}/${at}`));
  if (typeof tree !== "object" || tree === null) return tree;
  const tag = tagOf(tree);
  const members = (each) => mapped(each, (inner, name) => fromStored(inner, `${path}/${name}`));
  if (tag === undefined) return members(tree);
  const { [tag]: inner, ...rest } = tree;
  const made = READERS[tag]?.(inner, rest, path, members);
  if (made !== undefined) return made;
  const fact = "a stored value is of a type that JavaScript does not have: read this thread in Python";
  throw new InvalidInput(`${fact}. tag=\`${tag}\` path=\`${path}\``, { path });
}

const READERS = {
  $int: (inner) => Number(inner),
  $message: (name, fields) => messageOf(name, fields),
  $plain: (inner, _, path, members) => members(inner),
  $js: (inner, _, path, members) => members(inner),
  $set: (inner, _, path) => recordOf("Set", [fromStored(inner, path)]),
  $frozenset: (inner, _, path) => recordOf("Set", [fromStored(inner, path)]),
  $map: (inner, _, path) => recordOf("Map", [fromStored(inner, path)]),
  $tuple: (inner, _, path) => fromStored(inner, path),
  $deque: (inner, _, path) => fromStored(inner, path),
  $bytes: (inner) => recordOf("Uint8Array", [Array.from(fromBase64(inner))], "from"),
  $bytearray: (inner) => recordOf("Uint8Array", [Array.from(fromBase64(inner))], "from"),
  "$message+": (name, fields, path, members) => {
    const { $extra: extra, ...own } = members(fields);
    return messageOf(name, { ...own, ...extra });
  },
  $object: (name, { fields }, path, members) => {
    if (name !== SEND && name !== INTERRUPTION) return undefined;
    const { node, arg, timeout, id, value } = members(fields);
    if (name === INTERRUPTION) return { value, id };
    return { node, args: arg, ...(timeout === null ? {} : { timeout }) };
  },
};

function messageOf(name, fields) {
  const { type: _, ...rest } = fields;
  // Python stores a field without a value as null.
  const kwargs = Object.fromEntries(Object.entries(rest).filter(([, each]) => each !== null));
  return { lc: 1, type: "constructor", id: [...MESSAGES, name], kwargs };
}

function recordOf(name, args, method = null) {
  return { lc: 2, type: "constructor", id: [name], method, args, kwargs: {} };
}

function toBase64(data) {
  const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
}

function fromBase64(text) {
  return Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
}
