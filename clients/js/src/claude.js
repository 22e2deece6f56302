// The `SessionStore` of the Claude Agent SDK, in a Limpet store. The class is documented in claude.d.ts.
//
// The layout is that of Python's LimpetClaudeStore, so that a session can be continued in either language. The SDKs
// have the same summary under other names: it is stored as Python has it.

import { foldSessionSummary } from "@anthropic-ai/claude-agent-sdk";
import { checkOwn, conversations, KIND, Log, MAIN } from "./logs.js";
import { Conflict, Corrupt, InvalidInput } from "./errors.js";
import { encode } from "./json.js";
import { gathered } from "./records.js";

const MARK = "claude";
const ENTRIES = "entries";
const EXACT = "limpet:exact"; // the JSON text of an entry that could not be stored as it is
const LOGS_MAX = 256; // transcripts whose entry ids are remembered: an agent has few open at a time

export class LimpetClaudeStore {
  #store;
  #logs = new Map();

  constructor(store) {
    this.#store = store;
  }

  async append(key, entries) {
    const log = this.#log(key);
    try {
      await this.#append(log, key, entries);
    } catch (error) {
      if (!(error instanceof InvalidInput)) throw error;
      const changed = entries.map(storable);
      if (changed.every((each, at) => each === entries[at])) throw error;
      await this.#append(log, key, changed);
    }
  }

  async load(key) {
    const found = await this.#log(key).read();
    return found && found.map((each) => (EXACT in each ? JSON.parse(each[EXACT]) : each));
  }

  async listSessions(projectKey) {
    const found = await gathered(this.#sessions(projectKey));
    return found.map(({ sessionId, head }) => ({ sessionId, mtime: mtimeOf(head) }));
  }

  async listSessionSummaries(projectKey) {
    const found = await gathered(this.#sessions(projectKey));
    return found
      .filter(({ head }) => isObject(head.metadata[MARK]))
      .map(({ sessionId, head }) => ({ sessionId, mtime: mtimeOf(head), data: renamed(head.metadata[MARK], camelCase) }));
  }

  async delete(key) {
    const scope = this.scope(key);
    const head = await scope.info().catch((error) => {
      if (error instanceof Corrupt) return null; // what is damaged can be deleted
      throw error;
    });
    checkOwn(head, MARK);
    await (isMain(key) ? this.#store.deleteSession(scope.sessionId) : scope.delete());
  }

  async listSubkeys(key) {
    const found = await gathered(conversations(this.#store, MARK, { sessionId: sessionOf(key) }));
    const names = found.map((each) => each.key.scopeId).filter((name) => name.startsWith(`${MAIN}/`));
    return names.map((name) => name.slice(MAIN.length + 1));
  }

  scope(key) {
    return this.#store.scope(sessionOf(key), isMain(key) ? MAIN : `${MAIN}/${textIn(key, "subpath")}`, KIND);
  }

  #log(key) {
    const scope = this.scope(key);
    const name = JSON.stringify(scope.key);
    const log = this.#logs.get(name) ?? new Log(scope, ENTRIES, MARK, uuidOf);
    this.#logs.delete(name);
    this.#logs.set(name, log);
    if (this.#logs.size > LOGS_MAX) this.#logs.delete(this.#logs.keys().next().value);
    return log;
  }

  async *#sessions(projectKey) {
    const prefix = projectOf({ projectKey });
    for await (const { key, head } of conversations(this.#store, MARK, { prefix })) {
      const sessionId = unescaped(key.sessionId.slice(prefix.length));
      if (sessionId !== undefined && head !== null && key.scopeId === MAIN) yield { sessionId, head };
    }
  }

  async #append(log, key, entries) {
    if (!isMain(key)) await log.append(entries);
    else if (!(await this.#appendFork(log.scope, key, entries))) {
      await log.append(entries, (head, added) => folded(key, head, added));
    }
  }

  /** Save the first entries of a fork with its origin; return whether that was done. */
  async #appendFork(scope, key, entries) {
    const origin = entries.findLast((each) => isObject(each.forkedFrom))?.forkedFrom;
    if (origin === undefined || (await scope.info()) !== null) return false;
    const forkedFrom = await this.#snapshotWith(key, origin);
    if (forkedFrom === null) return false;
    try {
      const metadata = { [MARK]: folded(key, null, entries) };
      await scope.save({ [ENTRIES]: entries }, { metadata, forkedFrom, expect: null });
      return true;
    } catch (error) {
      if (error instanceof Conflict) return false; // another process was faster
      throw error;
    }
  }

  /** Return the first snapshot of the session that has the entry from which a fork begins. */
  async #snapshotWith({ projectKey }, { sessionId, messageUuid }) {
    if (typeof sessionId !== "string" || sessionId === "" || typeof messageUuid !== "string") return null;
    const scope = this.scope({ projectKey, sessionId });
    const ids = await gathered(scope.ids()); // the store minted them: in the order of saving
    let first = 0;
    let end = ids.length;
    while (first < end) {
      const middle = (first + end) >> 1;
      const entries = (await scope.load(ids[middle]))?.state[ENTRIES] ?? [];
      if (entries.some((each) => each.uuid === messageUuid)) end = middle;
      else first = middle + 1;
    }
    return first < ids.length ? { scope: scope.key, id: ids[first] } : null;
  }
}

function folded(key, head, added) {
  const data = head?.metadata[MARK];
  if (head !== null && !isObject(data)) return true; // another program added: a summary of the rest would be wrong
  const before = head === null ? undefined : { sessionId: key.sessionId, mtime: 0, data: renamed(data, camelCase) };
  return renamed(foldSessionSummary(before, key, added).data, snakeCase);
}

function renamed(data, change) {
  return Object.fromEntries(Object.entries(data).map(([name, value]) => [change(name), value]));
}

function camelCase(name) {
  return name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
}

function snakeCase(name) {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

function mtimeOf(head) {
  return head.updatedAt.getTime();
}

function uuidOf({ uuid }) {
  return typeof uuid === "string" ? uuid : undefined;
}

const LONE_SURROGATE = /(?<!\\)((?:\\\\)*)\\ud[89a-f][0-9a-f]{2}/g; // in JSON text, which escapes them only if alone

/**
 * Return an entry as it can be stored, with its exact text if that is not the same.
 *
 * Of one that is nested too deep only the texts can be.
 */
function storable(entry) {
  const text = JSON.stringify(entry);
  const whole = text.replace(LONE_SURROGATE, "$1\\ufffd");
  if (whole === text && isStorable(entry)) return entry;
  const plain = JSON.parse(whole);
  const texts = () => Object.entries(plain).filter(([, value]) => typeof value === "string");
  return { ...(isStorable(plain) ? plain : Object.fromEntries(texts())), [EXACT]: text };
}

function isStorable(entry) {
  try {
    encode({ [ENTRIES]: [entry] });
    return true;
  } catch {
    return false;
  }
}

// Addresses

function isMain(key) {
  return key.subpath === undefined;
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function textIn(key, name) {
  if (typeof key[name] === "string" && key[name] !== "") return key[name];
  throw new InvalidInput(`the key must have a ${name}. type=\`${typeof key[name]}\``);
}

/** The SDK's project keys begin with a hyphen, which a command line would take for an option. */
function projectOf(key) {
  return `${MARK}/${escaped(textIn(key, "projectKey"))}/`;
}

function sessionOf(key) {
  return projectOf(key) + escaped(textIn(key, "sessionId"));
}

function escaped(name) {
  return name.replaceAll("%", "%25").replaceAll("/", "%2F");
}

/** Return the name that `escaped` makes this of, undefined if there is none: other programs choose ids freely. */
function unescaped(part) {
  const name = part.replaceAll("%2F", "/").replaceAll("%25", "%");
  return name !== "" && escaped(name) === part ? name : undefined;
}
