// The `SnapshotStorage` of the Strands Agents SDK for TypeScript, in a Limpet store.
//
// A location is a scope: session, scope id and kind. The latest snapshot is a head that is not kept; history is kept
// without becoming the head. The state is `data`; the other fields are in `metadata.strands`; the manifest is a note.
// `limpet.compat.strands` in Python uses the same addresses, so each reads what the other has written.

import { Corrupt, InvalidInput, LimpetError } from "./errors.js";
import { microseconds } from "./records.js";

const SCHEMA_VERSION = "1.0";
const MANIFEST = "manifest";
const IDENTIFIER = /^[a-z0-9_-]{1,200}$/;
const UUID7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/** The storage failed, or its data is damaged. The reason is the `cause`. */
export class SessionError extends LimpetError {}

export class StoreStorage {
  #store;
  #kept = new Map(); // what was kept since the last latest, by scope

  constructor(store) {
    this.#store = store;
  }

  async saveSnapshot({ location, snapshotId, isLatest, snapshot }) {
    const scope = this.#scope(location);
    const id = isLatest ? undefined : checkIdentifier("snapshotId", snapshotId);
    if (typeof snapshot !== "object" || snapshot === null || !("data" in snapshot)) {
      throw new InvalidInput("a snapshot is an object with `data`");
    }
    const { data, ...rest } = snapshot;
    const envelope = { appData: {}, ...rest };
    const facts = { metadata: { strands: envelope } };
    const made = microseconds(envelope.createdAt ?? envelope.created_at);
    if (made !== null) facts.createdAt = new Date(made / 1_000);
    await told("the snapshot was not saved", location, async () => {
      const place = JSON.stringify([location.sessionId, location.scope, location.scopeId]);
      if (id !== undefined) {
        await scope.save(data, { ...facts, id, head: false, overwrite: true });
        if (this.#kept.size >= 1_000) this.#kept.clear();
        this.#kept.set(place, id);
        return;
      }
      // By default a draft has the parent of the one that it replaces: history would be a star.
      const parent = this.#kept.get(place);
      this.#kept.delete(place);
      try {
        return await scope.save(data, { ...facts, keep: false, ...(parent !== undefined && { parent }) });
      } catch (error) {
        if (!(error instanceof Corrupt)) throw error;
        // A latest that cannot be read is replaced, so that the session can continue.
        console.warn(`the latest snapshot was damaged and is replaced. session_id=\`${location.sessionId}\``);
        return scope.save(data, { ...facts, keep: false, parent: null, past_damage: true });
      }
    });
  }

  async loadSnapshot({ location, snapshotId }) {
    const scope = this.#scope(location);
    if (snapshotId !== undefined) checkIdentifier("snapshotId", snapshotId);
    const found = await told("the snapshot cannot be read", location, () => scope.load(snapshotId));
    // A head that is not kept has an id too, but is not in history; `gone` marks a latest that was deleted.
    if (found === null || found.metadata.form === "gone" || (snapshotId !== undefined && !found.kept)) return null;
    const { appData = {}, ...envelope } = objectOf(found.metadata.strands);
    return {
      scope: found.scope.kind,
      schemaVersion: SCHEMA_VERSION,
      createdAt: found.createdAt.toISOString(),
      ...envelope,
      data: found.state,
      appData,
    };
  }

  async listSnapshotIds({ location, limit = Infinity, startAfter }) {
    if (typeof limit !== "number" || Number.isNaN(limit)) throw new InvalidInput("limit must be a number");
    if (limit <= 0) return [];
    const scope = this.#scope(location);
    const after = startAfter ? checkIdentifier("startAfter", startAfter) : undefined;
    return told("the snapshots cannot be listed", location, async () => {
      if (after !== undefined && !UUID7.test(after) && (await scope.info(after)) === null) {
        throw new InvalidInput(`startAfter is neither a UUID 7 nor an id in history. id=\`${after}\``);
      }
      const found = [];
      for await (const id of scope.ids({ after })) {
        if (IDENTIFIER.test(id)) found.push(id); // other programs may have saved ids that Strands would refuse
        if (found.length >= limit) break;
      }
      return found;
    });
  }

  async deleteSession({ sessionId }) {
    checkIdentifier("sessionId", sessionId);
    await told("the session was not deleted", { sessionId }, () => this.#store.deleteSession(sessionId));
  }

  async loadManifest({ location }) {
    const scope = this.#scope(location);
    const note = await told("the manifest cannot be read", location, () => scope.note(MANIFEST));
    return { schemaVersion: SCHEMA_VERSION, updatedAt: new Date().toISOString(), ...objectOf(note?.value) };
  }

  async saveManifest({ location, manifest }) {
    const scope = this.#scope(location);
    await told("the manifest was not saved", location, () => scope.setNote(MANIFEST, manifest));
  }

  #scope({ sessionId, scope, scopeId }) {
    checkIdentifier("sessionId", sessionId);
    if (scope !== "agent" && scope !== "multiAgent") throw new InvalidInput("scope must be agent or multiAgent");
    return this.#store.scope(sessionId, checkIdentifier("scopeId", scopeId), scope);
  }
}

/** Run a call of the store; its errors become SessionError, except those about the arguments. */
async function told(fact, { sessionId, scopeId }, call) {
  try {
    return await call();
  } catch (cause) {
    if (!(cause instanceof LimpetError) || cause instanceof InvalidInput) throw cause;
    const where = scopeId === undefined ? "" : ` scope_id=\`${scopeId}\``;
    throw new SessionError(`${fact}. session_id=\`${sessionId}\`${where}`, { cause });
  }
}

function checkIdentifier(name, value) {
  if (typeof value === "string" && IDENTIFIER.test(value)) return value;
  throw new InvalidInput(
    `an identifier has 1 to 200 lowercase letters, digits, hyphens and underscores. ${name}=\`${value}\``,
  );
}

function objectOf(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};
}
