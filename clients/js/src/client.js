// Answers as values: parsed, page by page, as lines, as changes.

import { Conflict, errorOf, LimpetError, Unavailable } from "./errors.js";
import { encode } from "./json.js";
import { bodyOf, checkCount, infoOf, randomKey } from "./records.js";
import { pauses, TIMER_MS_MAX } from "./transport.js";

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
    return text === null ? null : parsed(text);
  }

  /** Return the answer of an operation. */
  async call(operation, given, options) {
    const text = await this.#send(operation, given, options);
    return text === null ? null : parsed(text);
  }

  async lines(operation, given) {
    const found = (await this.#send(operation, given)).split("\n").filter(Boolean).map(parsed);
    const problem = found.find((each) => each.type?.startsWith?.("urn:limpet:")); // it is the last, if any
    if (problem !== undefined) throw errorOf(problem, problem.status);
    return found;
  }

  /**
   * Send an operation: what is no parameter of it is a member of its body.
   *
   * A write has a key, by which the server recognises it if it is sent again.
   */
  #send(operation, given = {}, { headers, body, repeatable = operation.idempotent, hasKey = operation.writes, ...more } = {}) {
    const members = { ...given };
    for (const name of operation.params) delete members[name];
    return this.#transport.request(operation.method, operation.path, {
      ...more,
      repeatable,
      query: Object.fromEntries(operation.params.map((name) => [name, given[name]])),
      body: operation.hasBody ? (body ?? bodyOf(members)) : undefined,
      headers: hasKey ? { ...headers, "idempotency-key": randomKey() } : headers,
    });
  }

  /**
   * Yield the items of a listing, one request for each page. Nothing is held between two pages.
   *
   * `after` returns where to begin; `cursor` is the name of that parameter.
   */
  pages(operation, given, { limit, after, cursor = "after", map = (item) => item } = {}) {
    return this.#walk(operation, given, { left: checkCount("limit", limit) ?? Infinity, after, cursor, map });
  }

  async *#walk(operation, given, { left, after, cursor, map }) {
    let next = await after?.();
    while (left > 0) {
      const page = await this.call(operation, { ...given, [cursor]: next, limit: Math.min(left, PAGE_ITEMS_MAX) });
      yield* page.items.map(map);
      if (page.next === null) return;
      left -= page.items.length;
      next = page.next;
    }
  }

  watch(operation, query, timeoutS) {
    return watched(this.#transport, operation.path, query, timeoutS);
  }
}

/**
 * Iterate over what a watch reports. `return()` ends it at once, also while a `next()` is waiting:
 * an async generator alone would only end after the next change.
 */
function watched(transport, path, query, timeoutS) {
  const controller = new AbortController();
  const changes = changesOf(transport.events(path, query, controller.signal));
  return {
    next() {
      const stop = () => controller.abort();
      const timer = timeoutS === undefined ? undefined : setTimeout(stop, Math.min(timeoutS * 1_000, TIMER_MS_MAX));
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

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new LimpetError("the answer is not JSON: the URL is not that of a Limpet server", { cause });
  }
}

async function* changesOf(events) {
  const seen = new Map(); // of each scope: after a new connection the server may repeat what it has said
  for await (const { event, data } of events) {
    if (event === "end") return;
    const info = infoOf(parsed(data));
    const scope = JSON.stringify(info.scope);
    if (seen.get(scope) === info.revision) continue;
    seen.set(scope, info.revision);
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
