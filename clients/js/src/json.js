// States as JSON: what JSON.stringify would store differently from what was given is refused.

import { InvalidInput } from "./errors.js";

const DEPTH_MAX = 200;

/** Return the text of a value, or throw InvalidInput with the path of what is not JSON. */
export function encode(value, what = "state") {
  check(value, { up: null, name: "", depth: 0 }, what);
  return JSON.stringify(value);
}

// `place` is the way to the value from the outside: text is made of it only for an error.
function check(value, place, what) {
  if (value !== null && typeof value === "object") {
    if (place.depth > DEPTH_MAX) {
      throw new InvalidInput(`${what} is nested more than ${DEPTH_MAX} deep, or contains itself`);
    }
    if (typeof value.toJSON === "function") check(value.toJSON(""), place, what);
    else if (Array.isArray(value)) {
      // Not forEach, which passes over the holes of a sparse array.
      for (let at = 0; at < value.length; at += 1) checkMember(value[at], place, at, what);
    } else if (isOpaque(value)) throw refused(`a ${value.constructor.name} is not JSON`, place);
    else {
      for (const name of Object.keys(value)) {
        if (value[name] !== undefined) checkMember(value[name], place, name, what);
      }
    }
  } else if (!isPlain(value)) throw refused(REASONS[typeof value], place);
}

function checkMember(value, up, name, what) {
  if (!isPlain(value)) check(value, { up, name, depth: up.depth + 1 }, what);
}

function isPlain(value) {
  const type = typeof value;
  return type === "string" || type === "boolean" || value === null || (type === "number" && Number.isFinite(value));
}

const REASONS = {
  number: "NaN and Infinity are not JSON",
  undefined: "undefined is not JSON: give null",
  bigint: "a BigInt is not JSON: give a number up to 2^53, or text",
  function: "a function is not JSON",
  symbol: "a symbol is not JSON",
};

/** JSON.stringify would make `{}` of these, or an object of numbered members. */
function isOpaque(value) {
  return (
    value instanceof Map ||
    value instanceof Set ||
    value instanceof Promise ||
    value instanceof ArrayBuffer ||
    ArrayBuffer.isView(value)
  );
}

function refused(message, place) {
  let path = "";
  for (let at = place; at.up !== null; at = at.up) {
    path = `/${String(at.name).replaceAll("~", "~0").replaceAll("/", "~1")}${path}`;
  }
  return new InvalidInput(`${message}. path=\`${path}\``, { path });
}
