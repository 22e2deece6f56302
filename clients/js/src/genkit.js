// The `SessionStore` of Genkit, in a Limpet store.
//
// A session is the scope `main` of kind `agent`; a tenant is a prefix, `tenant/session`, each with `%` and `/` inside
// escaped. Id, parent, status and state of a row are those of a kept snapshot, the others are in `metadata.genkit`.
// `limpet.compat.genkit` in Python has the same addresses and rules, so each continues what the other has written.

import { AlreadyExists, Conflict, InvalidInput, NotFound, Unavailable } from "./errors.js";
import { gathered, microseconds, randomKey } from "./records.js";
import { pauses } from "./transport.js";

const STATUSES = new Set(["completed", "aborted", "failed", "pending", "aborting"]); // the first three are final
const FINAL = new Set(["completed", "aborted", "failed"]);
const HEARTBEAT_AGE_MS_MAX = 60_000;
const CONTENTION_WAIT_MS = 30_000;
const RELOCATE_S = 300; // a snapshot may have been deleted, and saved again in another scope

// What is not in `metadata.genkit`, because the snapshot itself has it.
const ELSEWHERE = ["snapshotId", "sessionId", "parentId", "status", "state"];
const STATELESS = "genkit_stateless"; // in metadata: the row has no state, which differs from null
const BORN = "genkit_born"; // in metadata: tells apart two equal rows that are created at once

export class SessionStore {
  #store;
  #options;

  constructor(store, { rejectBranchingSessions = false, latest = "leaf", prefixOf = tenantIn } = {}) {
    if (latest !== "leaf" && latest !== "newest") throw new InvalidInput("latest must be leaf or newest");
    this.#store = store;
    this.#options = { rejectBranchingSessions, latest, prefixOf };
  }

  async getSnapshot({ snapshotId, sessionId, context } = {}) {
    if (Boolean(snapshotId) === Boolean(sessionId)) {
      throw new InvalidInput("give either a snapshotId or a sessionId");
    }
    const tenant = this.#tenant(context);
    for (;;) {
      const there = snapshotId
        ? await this.#locate(tenant, checkName("snapshotId", snapshotId))
        : await this.#latest(tenant, checkName("sessionId", sessionId));
      if (there === null) return undefined;
      const found = await this.#store.scope(there.scope).load(there.id);
      if (found !== null) return asRead(rowOf(found, tenant)); // otherwise it was deleted meanwhile
    }
  }

  async saveSnapshot(snapshotId, mutator, { context } = {}) {
    const tenant = this.#tenant(context);
    if (!snapshotId) return this.#create(tenant, mutator);
    checkName("snapshotId", snapshotId);
    const pause = pauses(CONTENTION_WAIT_MS, { firstMs: 2, longestMs: 100 });
    for (;;) {
      let where = (await this.#locate(tenant, snapshotId))?.scope;
      if (where === undefined) {
        const after = await mutator(undefined);
        if (after === null) return null;
        try {
          return await this.#insert(tenant, snapshotId, after);
        } catch (error) {
          // Another writer was faster; or it is a draft of another program, which is not found by its id.
          if (!(error instanceof AlreadyExists)) throw error;
          where = tenant.scope(sessionOf(after));
        }
      }
      try {
        return await this.#update(tenant, where, snapshotId, mutator);
      } catch (error) {
        if (!(error instanceof DeletedMeanwhile)) throw error;
        if (!(await pause())) throw new Unavailable(`other writers kept changing it. snapshot_id=\`${snapshotId}\``);
      }
    }
  }

  onSnapshotStateChange(snapshotId, callback, { context } = {}) {
    const tenant = this.#tenant(context);
    checkName("snapshotId", snapshotId);
    const subscription = { ended: false, watch: null, seen: null };
    this.#follow(tenant, snapshotId, callback, subscription).catch((error) => {
      console.error(`watching has ended. snapshot_id=\`${snapshotId}\``, error);
    });
    return () => {
      subscription.ended = true;
      subscription.watch?.return();
    };
  }

  /** Return the scope of a session: to list its history, fork, watch, prune or delete it. */
  scope(sessionId, { context } = {}) {
    return this.#store.scope(this.#tenant(context).scope(checkName("sessionId", sessionId)));
  }

  #tenant(context) {
    return new Tenant(this.#options.prefixOf(context));
  }

  // Reading

  /** Find a snapshot of the tenant: in the scope `main`, else the last saved one. */
  async #locate(tenant, id) {
    let elsewhere = null;
    for await (const { scope } of this.#store.history({ id, prefix: tenant.prefix })) {
      const sessionId = tenant.sessionOf(scope.sessionId);
      if (sessionId === null || scope.kind !== "agent") continue;
      if (scope.scopeId === "main") return { scope, id };
      elsewhere ??= { scope, id };
    }
    return elsewhere;
  }

  async #latest(tenant, sessionId) {
    const scope = this.#store.scope(tenant.scope(sessionId));
    const head = await scope.info();
    if (head === null) return null;
    const byLeaf = this.#options.latest === "leaf";
    let infos = await gathered(byLeaf ? scope.leaves() : scope.history());
    if (!head.kept) {
      // A draft of another program.
      infos = [...infos.filter((each) => !byLeaf || each.id !== head.parentId), head];
    }
    if (infos.length === 0) infos = await gathered(scope.history()); // the parents form a circle
    const rows = infos.map((each) => rowOf(each, tenant));
    return { scope: scope.key, id: latestOf(rows, sessionId, this.#options).snapshotId };
  }

  // Writing

  async #create(tenant, mutator) {
    const after = await mutator(undefined);
    if (after === null) return null;
    const id = after?.snapshotId || undefined;
    if (id !== undefined && (await this.#locate(tenant, checkName("snapshotId", id))) !== null) {
      throw new AlreadyExists(`the snapshot exists. snapshot_id=\`${id}\``, { id });
    }
    return this.#insert(tenant, id, after);
  }

  async #insert(tenant, id, after) {
    const row = nextRow(id, null, after);
    const scope = this.#store.scope(tenant.scope(row.sessionId));
    const saved = await scope.save(row.state ?? null, {
      id,
      parent: row.parentId ?? null,
      status: row.status,
      metadata: { [BORN]: randomKey(), ...metadataOf(row) },
      createdAt: new Date(microseconds(row.createdAt) / 1_000),
    });
    return saved.id;
  }

  async #update(tenant, where, id, mutator) {
    let thrown;
    const change = async (stored) => {
      const before = rowOf(stored, tenant);
      let after;
      try {
        after = await mutator(structuredClone(before));
      } catch (error) {
        thrown = error;
        throw error;
      }
      if (after === null) return null;
      const row = nextRow(id, before, after);
      const others = Object.entries(stored.metadata).filter(([name]) => name !== "genkit" && name !== STATELESS);
      return {
        state: row.state ?? null,
        status: row.status || stored.status,
        metadata: { ...Object.fromEntries(others), ...metadataOf(row) },
      };
    };
    try {
      return (await this.#store.scope(where).update(id, change))?.id ?? null;
    } catch (error) {
      if (error instanceof NotFound && error !== thrown) throw new DeletedMeanwhile();
      throw error;
    }
  }

  // Watching

  async #follow(tenant, id, callback, subscription) {
    const pause = pauses(Infinity, { firstMs: 500, longestMs: 5_000 });
    while (!subscription.ended) {
      try {
        const there = await this.#locate(tenant, id);
        if (subscription.ended) return;
        // Until it exists, any snapshot of that id that appears may be it, or another tenant's.
        subscription.watch =
          there === null
            ? this.#store.watch({ snapshotId: id, prefix: tenant.prefix, timeoutS: RELOCATE_S })
            : this.#store.scope(there.scope).watch(id, { timeoutS: RELOCATE_S });
        for await (const _ of subscription.watch) {
          if (there === null) {
            if ((await this.#locate(tenant, id)) !== null) break;
          } else await this.#report(tenant, there, callback, subscription);
        }
      } catch (error) {
        if (!(error instanceof Unavailable)) throw error;
        await pause();
      }
    }
  }

  async #report(tenant, { scope, id }, callback, subscription) {
    const found = await this.#store.scope(scope).load(id);
    const version = found && JSON.stringify([found.scope, found.revision]);
    if (subscription.ended || found === null || version === subscription.seen) return;
    subscription.seen = version;
    try {
      await callback(asRead(rowOf(found, tenant)));
    } catch (error) {
      console.error(`a callback has failed. snapshot_id=\`${id}\``, error);
    }
  }
}

class DeletedMeanwhile extends Error {}

/** The stored sessions of a tenant begin with `prefix`, which is empty for no tenant. */
class Tenant {
  constructor(name) {
    if (name !== undefined && name !== null && (typeof name !== "string" || name.trim() === "")) {
      throw new InvalidInput(`a tenant must have a name. type=\`${typeof name}\``);
    }
    this.prefix = name === undefined || name === null ? "" : `${escaped(name)}/`;
  }

  scope(sessionId) {
    return { sessionId: this.prefix + escaped(sessionId), scopeId: "main", kind: "agent" };
  }

  /** Return the session of a stored name, null if it is not this tenant's. */
  sessionOf(stored) {
    if (!stored.startsWith(this.prefix)) return null;
    const inside = stored.slice(this.prefix.length);
    const plain = inside.replaceAll("%2F", "/").replaceAll("%25", "%");
    // Other programs choose names freely: two of them must not read as one session.
    return plain !== "" && escaped(plain) === inside ? plain : null;
  }
}

function escaped(name) {
  return name.replaceAll("%", "%25").replaceAll("/", "%2F");
}

function tenantIn(context) {
  if (context === undefined || context === null || typeof context === "string") return context;
  if (Object.keys(context).length === 0) return null;
  const uid = context.auth?.uid;
  if (uid === undefined || uid === null) {
    throw new InvalidInput("the context has no auth.uid: give the store a prefixOf");
  }
  return uid;
}

// Rows and snapshots

function rowOf(found, tenant) {
  const given = found.metadata.genkit;
  const isObject = typeof given === "object" && given !== null && !Array.isArray(given);
  const members = Object.entries(isObject ? given : {}).filter(([name]) => !ELSEWHERE.includes(name));
  const envelope = Object.fromEntries(members);
  const row = {
    snapshotId: found.id,
    sessionId: tenant.sessionOf(found.scope.sessionId) ?? found.scope.sessionId,
    ...(found.parentId === null ? {} : { parentId: found.parentId }),
    createdAt: found.createdAt.toISOString(),
    ...(Object.keys(envelope).length ? {} : { updatedAt: found.updatedAt.toISOString() }),
    ...envelope,
    status: found.status || "completed",
  };
  const hasState = "state" in found && !(found.state === null && STATELESS in found.metadata);
  return repaired(hasState ? { ...row, state: found.state } : row);
}

function metadataOf(row) {
  const kept = Object.entries(row).filter(([name, value]) => !ELSEWHERE.includes(name) && value !== undefined);
  return { genkit: Object.fromEntries(kept), ...(row.state === undefined ? { [STATELESS]: true } : {}) };
}

/** Return a row that is not its own parent: such a parent is unknown. */
function repaired(row) {
  const { parentId, ...rest } = row;
  return parentId && parentId !== row.snapshotId ? row : rest;
}

function asRead(row) {
  const heard = row.status === "pending" ? microseconds(row.heartbeatAt) : null;
  const isOver = heard !== null && Date.now() - heard / 1_000 > HEARTBEAT_AGE_MS_MAX;
  return isOver ? { ...row, status: "expired" } : row;
}

function sessionOf(row) {
  return row?.sessionId || row?.state?.sessionId;
}

/** Return what is stored when `given` is returned for the row `before`; null: it is a new row. */
function nextRow(snapshotId, before, given) {
  if (typeof given !== "object" || given === null || typeof given.then === "function") {
    throw new InvalidInput(`the mutator must return a snapshot or null. type=\`${typeof given}\``);
  }
  const after = repaired({ ...given, snapshotId });
  const row = {
    ...after,
    sessionId: before === null ? sessionOf(after) : after.sessionId || before.sessionId,
    parentId: after.parentId || before?.parentId,
    createdAt: before?.createdAt || after.createdAt || new Date().toISOString(),
    status: after.status || before?.status || "completed",
  };
  checkChange(before, row);
  return row;
}

function checkChange(before, after) {
  const shown = `snapshot_id=\`${after.snapshotId}\``;
  const { sessionId, status } = after;
  if (typeof sessionId !== "string" || sessionId.trim() === "") {
    throw new InvalidInput(`a snapshot must have a session. ${shown}`);
  }
  if (!STATUSES.has(status) && status !== before?.status) {
    throw new InvalidInput(`this status cannot be stored. ${shown} status=\`${status}\``);
  }
  if (before === null) {
    if (microseconds(after.createdAt) === null) {
      throw new InvalidInput(`createdAt must be a time in ISO 8601. ${shown}`);
    }
    return;
  }
  if (sessionId !== before.sessionId) throw new InvalidInput(`a snapshot cannot move to another session. ${shown}`);
  if (after.parentId !== before.parentId) throw new InvalidInput(`the parent of a snapshot cannot change. ${shown}`);
  const was = before.status;
  if ((FINAL.has(was) && status !== was) || (was === "aborting" && status === "pending")) {
    throw new Conflict(`the snapshot is ${was} and stays so. ${shown} status=\`${status}\``);
  }
}

/** Return the latest row of a session: of the leaves, or of all, the one created last. */
function latestOf(rows, sessionId, { latest, rejectBranchingSessions }) {
  const parents = new Set(rows.map((each) => each.parentId));
  let leaves = rows.filter((each) => !parents.has(each.snapshotId));
  if (rejectBranchingSessions) {
    // A turn that failed or was aborted does not count as a branch, because it was tried again.
    const live = leaves.filter((each) => each.status !== "failed" && each.status !== "aborted");
    if (live.length > 1) {
      throw new Conflict(
        "the session has branching snapshots, so none is the latest: ask by snapshotId. " +
          `session_id=\`${sessionId}\` leaves=\`${live.length}\``,
      );
    }
    leaves = live.length ? live : leaves;
  }
  const candidates = latest === "newest" ? rows : leaves;
  if (candidates.length === 0) {
    throw new Conflict(
      `the parents in the session form a circle, so none is the latest: ask by snapshotId. session_id=\`${sessionId}\``,
    );
  }
  return candidates.reduce((a, b) => (isNewer(b, a) ? b : a));
}

function isNewer(a, b) {
  const [left, right] = [a, b].map((each) => microseconds(each.createdAt) ?? -Infinity);
  return left === right ? a.snapshotId > b.snapshotId : left > right;
}

function checkName(name, value) {
  if (typeof value === "string" && value.trim() !== "") return value;
  throw new InvalidInput(`${name} must be text that is not blank`);
}
