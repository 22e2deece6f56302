// Answers as values: parsed, page by page, as lines, as changes.

import { Conflict, Unavailable } from "./errors.js";
import { encode } from "./json.js";
import { checkCount, infoOf } from "./records.js";
import { pauses } from "./transport.js";

const PAGE_ITEMS_MAX = 256;
const CONTENTION_WAIT_MS = 30_000;

export class Client {
  #transport;

  constructor(transport) {
    this.#transport = transport;
  }

  async json(method, path, { body, ...options } = {}) {
    const text = await this.#transport.request(method, path, {
      ...options,
      body: body === undefined || typeof body === "string" ? body : encode(body, "the request"),
    });
    return text === null || text === "" ? null : JSON.parse(text);
  }

  async lines(method, path, options) {
    const text = await this.#transport.request(method, path, options);
    return text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
  }

  /** Yield the items of a listing. Nothing is held between two pages. */
  pages(path, query, { limit, cursor, method = "GET", map = (item) => item } = {}) {
    return this.#walk(path, query, { left: checkCount("limit", limit) ?? Infinity, cursor, method, map });
  }

  async *#walk(path, query, { left, cursor, method, map }) {
    let after = await cursor?.();
    while (left > 0) {
      const asked = { ...query, after, limit: Math.min(left, PAGE_ITEMS_MAX) };
      const { items, next } = await this.json(method, path, { query: asked, repeatable: true });
      yield* items.map(map);
      if (next === null) return;
      left -= items.length;
      after = next;
    }
  }

  watch(path, query, timeoutS) {
    return watched(this.#transport, path, query, timeoutS);
  }
}

/**
 * Iterate over what a watch reports. `return()` ends it at once, also while a `next()` is waiting:
 * an async generator alone would only end after the next change.
 */
function watched(transport, path, query, timeoutS) {
  const controller = new AbortController();
  const changes = changesOf(transport.events(path, query, controller.signal));
  let timer;
  return {
    next() {
      if (timeoutS !== undefined) timer = setTimeout(() => controller.abort(), timeoutS * 1_000);
      return changes.next().finally(() => clearTimeout(timer));
    },
    return(value) {
      controller.abort();
      return changes.return(value);
    },
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}

async function* changesOf(events) {
  const seen = new Map(); // after a new connection the server may repeat what it has said
  for await (const { event, data } of events) {
    if (event === "end") return;
    const info = infoOf(JSON.parse(data));
    const place = JSON.stringify([info.scope, info.id]);
    if (seen.get(place) === info.revision) continue;
    seen.set(place, info.revision);
    yield info;
  }
}

/** Repeat an attempt while other writers get in first: a Conflict is that only if `changed`. */
export async function contend(attempt, changed) {
  const pause = pauses(CONTENTION_WAIT_MS, { firstMs: 2, longestMs: 100 });
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof Conflict) || !(await changed())) throw error;
      if (!(await pause())) {
        throw new Unavailable("other writers kept getting in first: retry later", { cause: error });
      }
    }
  }
}
