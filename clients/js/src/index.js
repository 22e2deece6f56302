// A Limpet store over HTTP. The methods are documented in index.d.ts.

import { Client, contend } from "./client.js";
import { Conflict, InvalidInput, keyOf, NotFound, Unavailable } from "./errors.js";
import { encode } from "./json.js";
import * as operations from "./operations.js";
import {
  bodyOf,
  checkId,
  findingOf,
  forkName,
  infoOf,
  labelsOf,
  noteOf,
  randomKey,
  refOf,
  scopeInfoOf,
  snapshotOf,
  timeOf,
  wireRef,
} from "./records.js";
import { pauses, Transport } from "./transport.js";

export {
  AlreadyExists,
  Conflict,
  Corrupt,
  InvalidInput,
  LimpetError,
  NotFound,
  Unavailable,
  Unsupported,
} from "./errors.js";
export { Lease, Scope, Store };

const PAGE_STATES = 16;
const NAME_TRIES = 8;

/** Open a store. It does no I/O. */
export function open(url, options) {
  return new Store(new Client(new Transport(url, options)));
}

class Store {
  #client;

  constructor(client) {
    this.#client = client;
  }

  scope(sessionId, scopeId = "main", kind = "agent") {
    if (typeof sessionId === "object" && sessionId !== null) {
      return new Scope(this.#client, { scopeId: "main", kind: "agent", ...sessionId });
    }
    return new Scope(this.#client, { sessionId, scopeId, kind });
  }

  async find(snapshotId, { prefix = "" } = {}) {
    if (typeof snapshotId === "string") {
      const { value } = await this.history({ id: checkId("snapshotId", snapshotId), prefix, limit: 1 }).next();
      return value ?? null;
    }
    const { scope, id } = refOf(snapshotId);
    if (!scope.sessionId.startsWith(prefix)) return null;
    const found = await this.scope(scope).info(id);
    return found?.kept ? found : null;
  }

  history({ limit, after, id, labels, status, prefix } = {}) {
    const from = () => this.#cursor(after);
    const given = { prefix, id, labels: labelsOf(labels), status };
    return this.#client.pages(operations.history, given, { limit, after: from, map: infoOf });
  }

  sessions({ limit, after, prefix } = {}) {
    return this.#client.pages(operations.sessions, { prefix }, { limit, after: () => after });
  }

  scopes(sessionId, { kind, prefix } = {}) {
    return this.#client.pages(operations.scopes, { session_id: sessionId, kind, prefix }, { map: scopeInfoOf });
  }

  watch({ sessionId, snapshotId, prefix, timeoutS } = {}) {
    if (sessionId !== undefined && snapshotId !== undefined) {
      throw new InvalidInput("give sessionId or snapshotId, not both");
    }
    if (snapshotId !== undefined && typeof snapshotId !== "string") {
      const { scope, id } = refOf(snapshotId);
      return this.scope(scope).watch(id, { timeoutS });
    }
    return this.#client.watch(operations.watch, { session_id: sessionId, id: snapshotId, prefix }, timeoutS);
  }

  async deleteSession(sessionId) {
    return (await this.#client.call(operations.deleteSession, { session_id: checkId("sessionId", sessionId) })).deleted;
  }

  async compact() {
    return (await this.#client.call(operations.compact)).bytes;
  }

  async stats(sessionId) {
    const found = await this.#client.call(operations.stats, { session_id: sessionId });
    const { sessions, scopes, snapshots, largest } = found;
    return { sessions, scopes, snapshots, logicalBytes: found.logical_bytes, storedBytes: found.stored_bytes, largest };
  }

  check() {
    return this.#client.pages(operations.check, {}, { map: findingOf });
  }

  repair() {
    return this.#client.pages(operations.repair, {}, { map: findingOf });
  }

  request(method, path, options) {
    return this.#client.json(method, path, options);
  }

  async #cursor(after) {
    if (after === undefined || after === null) return undefined;
    const { scope, id } = refOf(after);
    return after.revision ?? (await this.scope(scope).revisionOf(id));
  }
}

class Scope {
  #client;
  #fence;

  constructor(client, { sessionId, scopeId, kind }, fence) {
    this.#client = client;
    this.#fence = fence;
    this.sessionId = checkId("sessionId", sessionId);
    this.scopeId = checkId("scopeId", scopeId);
    this.kind = checkId("kind", kind);
  }

  get key() {
    const { sessionId, scopeId, kind } = this;
    return { sessionId, scopeId, kind };
  }

  async save(state, { id, parent, createdAt, forkedFrom, expect, ...options } = {}) {
    const given = {
      ...options, // keep, head, overwrite, status, labels, metadata; the server refuses others
      id: id === undefined || id === null ? undefined : this.#idOf(id),
      parent: parent === undefined || parent === null ? parent : this.#idOf(parent),
      created_at: createdAt === undefined ? undefined : timeOf(createdAt),
      forked_from: forkedFrom === undefined || forkedFrom === null ? undefined : wireRef(refOf(forkedFrom)),
    };
    const passing = options.keep === false || options.overwrite === true;
    return this.#commit(operations.save, bodyOf(given, { state }), { expect, passing });
  }

  async append(key, items, { keep, status, labels, metadata, expect } = {}) {
    const body = bodyOf({ keep, status, labels, metadata }, { key, items });
    return this.#commit(operations.append, body, { expect, passing: keep === false });
  }

  async load(id) {
    const found = await this.#call(operations.load, { id: this.#optionalId(id) }, { orNull: true });
    return found && snapshotOf(found);
  }

  async *loadMany(ids) {
    const page = [];
    const read = async () => {
      const given = { ...this.#address(), ids: page.splice(0) };
      return (await this.#client.lines(operations.loadMany, given)).map(snapshotOf);
    };
    for await (const each of ids) {
      page.push(this.#idOf(each));
      if (page.length === PAGE_STATES) yield* await read();
    }
    if (page.length) yield* await read();
  }

  async info(id) {
    const found = await this.#call(operations.info, { id: this.#optionalId(id) }, { orNull: true });
    return found && infoOf(found);
  }

  history({ limit, after, labels, status } = {}) {
    const from = () => this.#cursor(after);
    const given = { labels: labelsOf(labels), status };
    return this.#pages(operations.scopeHistory, given, { limit, after: from, map: infoOf });
  }

  ids({ after, limit } = {}) {
    return this.#pages(operations.scopeIds, {}, { limit, after: () => this.#textCursor(after) });
  }

  notedIds({ after, limit } = {}) {
    return this.#pages(operations.noted, {}, { limit, after: () => this.#textCursor(after) });
  }

  ancestors(id) {
    return this.#ancestors(this.#idOf(id));
  }

  async *#ancestors(id) {
    let seen = 0;
    try {
      const walk = { after: () => id, cursor: "id", map: infoOf };
      for await (const each of this.#pages(operations.ancestors, {}, walk)) {
        seen += 1;
        yield each;
      }
    } catch (error) {
      if (seen === 0 || !(error instanceof NotFound)) throw error; // else the parent after a page is missing
    }
  }

  leaves() {
    return this.#pages(operations.scopeHistory, { leaves: true }, { map: infoOf });
  }

  async update(id, fn) {
    if (typeof fn !== "function") throw new InvalidInput(`update needs a function. type=\`${typeof fn}\``);
    const snapshotId = this.#idOf(id);
    let seen;
    const attempt = async () => {
      const before = await this.load(snapshotId);
      if (before === null) throw this.#missing(snapshotId);
      seen = before.revision;
      const after = await fn(before);
      if (after === null || after === undefined) return null;
      const { state, status, labels, metadata } = { ...before, ...after };
      const given = { id: snapshotId, replaces: before.revision, status, labels, metadata };
      return this.#commit(operations.save, bodyOf(given, { state }), { passing: true });
    };
    return contend(attempt, async () => (await this.info(snapshotId))?.revision !== seen);
  }

  async fork(id, { to, scopeId, patch, labels, metadata } = {}) {
    const snapshotId = this.#idOf(id);
    if (typeof patch === "function") return this.#forkBy(snapshotId, patch, { to, scopeId, labels, metadata });
    // `scope_id` is a member of the body here, and a parameter too.
    const body = bodyOf({ id: snapshotId, to, scope_id: scopeId, patch, labels, metadata });
    const found = await this.#call(operations.fork, {}, { body });
    return new Scope(this.#client, keyOf(found));
  }

  async restore(id, { labels, metadata, expect } = {}) {
    return infoOf(await this.#call(operations.restore, { id: this.#idOf(id), labels, metadata }, { expect }));
  }

  async diff(a, b) {
    return this.#call(operations.diff, { a: this.#idOf(a), b: this.#idOf(b) });
  }

  async prune({ keepLast, olderThanS, dryRun } = {}) {
    return this.#call(operations.prune, { keep_last: keepLast, older_than_s: olderThanS, dry_run: dryRun });
  }

  async deleteSnapshot(id) {
    return (await this.#call(operations.deleteSnapshots, { ids: [this.#idOf(id)] })).count;
  }

  async delete({ expect } = {}) {
    return (await this.#call(operations.deleteScope, {}, { expect })).deleted;
  }

  async note(name, { on } = {}) {
    const found = await this.#call(operations.readNote, this.#noteAt(name, on), { orNull: true });
    return found && noteOf(found);
  }

  notes({ on } = {}) {
    if (on === undefined || on === null || typeof on === "string" || "id" in on) {
      return this.#pages(operations.listNotes, { on: this.#optionalId(on) }, { map: noteOf });
    }
    const given = { on: Array.from(on, (each) => this.#idOf(each)) };
    return this.#pages(operations.listManyNotes, given, { map: noteOf });
  }

  async setNote(name, valueOrFn, { on, expect } = {}) {
    const given = this.#noteAt(name, on);
    const write = async (value, at) => {
      const options = { body: encode(value, "the note"), expect: at };
      return noteOf(await this.#call(operations.writeNote, given, options));
    };
    if (typeof valueOrFn !== "function") return write(valueOrFn, expect);
    let seen;
    const attempt = async () => {
      const before = await this.note(name, { on });
      seen = before?.revision ?? null;
      if (expect !== undefined && expect !== seen) {
        const fields = { scope: this.key, id: this.#optionalId(on) ?? null, expected: expect, found: seen };
        throw new Conflict(`the note has another revision. name=\`${name}\``, fields);
      }
      const after = await valueOrFn(before?.value ?? null);
      return after === null || after === undefined ? null : write(after, seen);
    };
    const changed = async () => ((await this.note(name, { on }))?.revision ?? null) !== seen;
    return contend(attempt, async () => expect === undefined && changed());
  }

  async deleteNote(name, { on } = {}) {
    return (await this.#call(operations.deleteNote, this.#noteAt(name, on))).deleted;
  }

  watch(id, { timeoutS } = {}) {
    return this.#client.watch(operations.scopeWatch, { ...this.#address(), id: this.#optionalId(id) }, timeoutS);
  }

  async claim({ owner, ttlS = 30, waitS = 0 } = {}, fn) {
    const lease = await Lease.claim(this.#client, this.key, { owner: checkId("owner", owner), ttlS, waitS });
    if (fn === undefined) return lease;
    try {
      return await fn(lease);
    } finally {
      await lease.release();
    }
  }

  /** Return the revision of a snapshot to continue after. */
  async revisionOf(id) {
    const found = await this.info(id);
    if (found === null) throw this.#missing(id);
    return found.revision;
  }

  async #cursor(after) {
    if (after === undefined || after === null) return undefined;
    return after.revision ?? this.revisionOf(this.#idOf(after));
  }

  #textCursor(after) {
    return after === undefined || after === null || typeof after === "string" ? after : this.#idOf(after);
  }

  /** Fork with the state that a function makes of the snapshot's. */
  async #forkBy(snapshotId, patch, { to, scopeId, labels, metadata }) {
    const sessionId = to ?? this.sessionId;
    const generated = scopeId === undefined && sessionId === this.sessionId;
    let seen;
    const attempt = async () => {
      const origin = await this.load(snapshotId);
      if (origin === null) throw this.#missing(snapshotId);
      seen = origin.revision;
      const given = {
        parent: null,
        new_scope: true,
        source: origin.revision,
        forked_from: wireRef(origin),
        status: origin.status,
        labels: labels ?? origin.labels,
        metadata: metadata ?? origin.metadata,
      };
      const body = bodyOf(given, { state: await patch(origin.state) });
      for (let left = generated ? NAME_TRIES : 1; ; left -= 1) {
        const name = generated ? forkName(this.scopeId) : (scopeId ?? this.scopeId);
        const target = new Scope(this.#client, { sessionId, scopeId: name, kind: this.kind });
        try {
          await target.#commit(operations.save, body);
          return target;
        } catch (error) {
          if (error.name !== "AlreadyExists" || left === 1) throw error;
        }
      }
    };
    return contend(attempt, async () => (await this.info(snapshotId))?.revision !== seen);
  }

  /** Send a commit, which the store itself recognises by its key: it may always be sent again. */
  async #commit(operation, body, options) {
    return infoOf(await this.#call(operation, {}, { ...options, body, repeatable: true }));
  }

  /** Call an operation on this scope. A write that compares is not sent again after a lost answer. */
  #call(operation, given, { expect, ...options } = {}) {
    const headers = operation.writes ? this.#headers(expect) : undefined;
    const repeatable = operation.idempotent && expect === undefined;
    return this.#client.call(operation, { ...this.#address(), ...given }, { headers, repeatable, ...options });
  }

  #pages(operation, given, options) {
    return this.#client.pages(operation, { ...this.#address(), ...given }, options);
  }

  #address() {
    return { session_id: this.sessionId, scope_id: this.scopeId, kind: this.kind };
  }

  #noteAt(name, on) {
    return { name: checkId("name", name), on: this.#optionalId(on) };
  }

  #headers(expect) {
    const headers = this.#fence === undefined ? {} : { "limpet-lease": this.#fence };
    if (expect === null) headers["if-none-match"] = "*";
    else if (typeof expect === "string" && /^[\w.-]+$/.test(expect)) headers["if-match"] = `"${expect}"`;
    else if (expect !== undefined) throw new InvalidInput("expect must be a revision, or null for none yet");
    return headers;
  }

  #idOf(snapshot) {
    if (typeof snapshot === "string") return checkId("id", snapshot);
    const { scope, id } = refOf(snapshot);
    if (["sessionId", "scopeId", "kind"].some((name) => scope[name] !== this[name])) {
      throw new InvalidInput(`the snapshot is of another scope. id=\`${id}\``);
    }
    return checkId("id", id);
  }

  #optionalId(snapshot) {
    return snapshot === undefined || snapshot === null ? undefined : this.#idOf(snapshot);
  }

  #missing(id) {
    const message = `there is no such snapshot: history() lists what there is. id=\`${id}\``;
    return new NotFound(message, { scope: this.key, id });
  }
}

class Lease extends Scope {
  #client;
  #wanted;
  #timer;

  constructor(client, key, wanted) {
    super(client, key, wanted.key);
    this.#client = client;
    this.#wanted = wanted;
    this.token = wanted.key;
  }

  static async claim(client, key, { owner, ttlS, waitS }) {
    const lease = new Lease(client, key, { key: randomKey(), owner, ttl_s: ttlS });
    const pause = pauses(waitS * 1_000, { firstMs: 10, longestMs: 500 });
    for (;;) {
      const held = await lease.#ask(operations.claim).catch((error) => {
        lease.release().catch(() => {}); // it may have been granted
        throw error;
      });
      if (held.key === lease.token) return lease;
      if (await pause()) continue;
      const expiresAt = new Date(Date.now() + Math.max(0, held.left_us / 1_000));
      throw new Conflict(
        `another worker holds the lease until ${expiresAt.toISOString()}, unless it renews it: try again ` +
          `later, or pass a longer waitS. owner=\`${held.owner}\``,
        { scope: key, owner: held.owner, expiresAt },
      );
    }
  }

  /** Release the lease. May be repeated. */
  async release() {
    clearTimeout(this.#timer);
    this.#timer = null;
    try {
      await this.#send(operations.release, { key: this.token });
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error; // otherwise the lease ends by itself
    }
  }

  async [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    await this.release();
  }

  /** Claim or renew, and do so again after a third of the time. */
  async #ask(operation) {
    const begun = Date.now();
    const held = await this.#send(operation, this.#wanted);
    if (held.key === this.token && this.#timer !== null) {
      // From when it was asked for, so that it never seems to last longer than it does.
      this.expiresAt = new Date(begun + held.left_us / 1_000);
      this.#renewIn((this.#wanted.ttl_s * 1_000) / 3);
    }
    return held;
  }

  /** Send what is harmless when it is made twice, so that it needs no key. */
  #send(operation, given) {
    const address = { session_id: this.sessionId, scope_id: this.scopeId, kind: this.kind };
    return this.#client.call(operation, { ...address, ...given }, { hasKey: false });
  }

  #renewIn(ms) {
    this.#timer = setTimeout(async () => {
      try {
        await this.#ask(operations.renew);
      } catch (error) {
        // Once it has passed to another holder every write is Conflict: there is nothing to renew.
        if (error instanceof Unavailable && this.#timer !== null) this.#renewIn((this.#wanted.ttl_s * 1_000) / 10);
      }
    }, ms);
    this.#timer.unref?.(); // Node: a lease alone does not keep the process running
  }
}
