// Records from and to the wire, and the checks of arguments.

import { InvalidInput, keyOf } from "./errors.js";
import { encode } from "./json.js";

const ID_CHARS_MAX = 512;

export function infoOf(found) {
  return {
    scope: keyOf(found),
    id: found.id,
    parentId: found.parent_id,
    forkedFrom: found.forked_from && { scope: keyOf(found.forked_from), id: found.forked_from.id },
    status: found.status,
    labels: found.labels,
    metadata: found.metadata,
    createdAt: new Date(found.created_at),
    updatedAt: new Date(found.updated_at),
    revision: found.revision,
    kept: found.kept,
    size: found.size,
  };
}

export function snapshotOf(found) {
  return { ...infoOf(found), state: found.state };
}

export function scopeInfoOf(found) {
  return { key: keyOf(found), head: found.head && infoOf(found.head) };
}

export function noteOf({ name, value, revision, updated_at, snapshot_id }) {
  return { name, value, revision, updatedAt: new Date(updated_at), snapshotId: snapshot_id };
}

export function findingOf(found) {
  return { ...found, scope: found.scope && keyOf(found.scope) };
}

export function wireRef({ scope, id }) {
  return { session_id: scope.sessionId, scope_id: scope.scopeId, kind: scope.kind, id };
}

/** Return the body of a request: undefined members of `optional` are left out. */
export function bodyOf(optional, required = {}) {
  const given = Object.entries(optional).filter(([, value]) => value !== undefined);
  const members = [...given, ...Object.entries(required)];
  return `{${members.map(([name, value]) => `${JSON.stringify(name)}:${encode(value, name)}`).join(",")}}`;
}

// Arguments

export function checkId(name, value) {
  if (typeof value !== "string") throw new InvalidInput(`${name} must be text. type=\`${typeof value}\``);
  if (value === "" || value.length > 2 * ID_CHARS_MAX) {
    throw new InvalidInput(`${name} must have 1 to ${ID_CHARS_MAX} characters. found=\`${value.length}\``);
  }
  // In a URL a lone surrogate would become another character, and so another id.
  if (/\p{Surrogate}/u.test(value)) throw new InvalidInput(`${name} contains a lone surrogate`);
  return value;
}

export function checkCount(name, value) {
  if (value === undefined || value === null) return undefined;
  if (!Number.isInteger(value) || value < 0) throw new InvalidInput(`${name} must be a whole number from 0 on`);
  return value;
}

export function refOf(snapshot) {
  if (typeof snapshot?.id !== "string" || typeof snapshot.scope !== "object") {
    throw new InvalidInput("a snapshot is given as its id, its info, or {scope, id}");
  }
  return snapshot;
}

export function labelsOf(labels) {
  return labels && encode(labels, "labels");
}

export function timeOf(moment) {
  return moment instanceof Date && !Number.isNaN(moment.getTime()) ? moment.toISOString() : moment;
}

const ISO = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?)(?:[.,](\d+))?(Z|[+-]\d\d(?::?\d\d)?)?)?$/;

/** Return a time in ISO 8601 as microseconds, null if it cannot be read. Without a zone it is UTC, as in Python. */
export function microseconds(text) {
  const found = typeof text === "string" && ISO.exec(text);
  if (!found) return null;
  const [, day, time = "00:00", fraction = "", zone = "Z"] = found;
  const ms = Date.parse(`${day}T${time}${/^.\d\d$/.test(zone) ? `${zone}:00` : zone}`);
  return Number.isNaN(ms) ? null : ms * 1_000 + Number(fraction.slice(0, 6).padEnd(6, "0"));
}

/** Return all that an iterator yields. */
export async function gathered(iterator) {
  const found = [];
  for await (const each of iterator) found.push(each);
  return found;
}

/** Return 32 hex digits. `crypto.randomUUID` is missing on pages that were not loaded over https. */
export function randomKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (each) => each.toString(16).padStart(2, "0")).join("");
}

/** Return `<name>~<8 letters and digits>`, in place of the suffix that a fork already has. */
export function forkName(name) {
  const letters = "abcdefghijklmnopqrstuvwxyz0123456789";
  const drawn = crypto.getRandomValues(new Uint8Array(8));
  const suffix = Array.from(drawn, (each) => letters[each % letters.length]).join("");
  return `${name.replace(/~[a-z0-9]{8}$/, "")}~${suffix}`;
}
