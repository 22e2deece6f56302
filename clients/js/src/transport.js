// One request, its retries, and streams of server-sent events: fetch and nothing else.

import { Conflict, errorOf, InvalidInput, LimpetError, NotFound, Unavailable } from "./errors.js";

const PAUSE_MS_FIRST = 50;
const PAUSE_MS_MAX = 2_000;
export const TIMER_MS_MAX = 2 ** 31 - 1; // a longer timer would fire at once
const SILENCE_MS_MAX = 75_000; // the server sends a comment every 30 seconds

// Node says that no connection was made; then nothing was sent, and any request may be repeated.
const NOT_SENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"]);

export class Transport {
  #base;
  #token;
  #fetch;
  #timeoutMs;
  #retryMs;

  constructor(url, { token, fetch, timeoutMs = 60_000, retryMs = 30_000 } = {}) {
    let parsed;
    try {
      parsed = new URL(url);
    } catch (cause) {
      throw new InvalidInput("open needs the URL of a server, such as http://127.0.0.1:7420", { cause });
    }
    if (!/^https?:$/.test(parsed.protocol) || parsed.search || parsed.hash) {
      throw new InvalidInput("the URL of a server begins with http or https and has no query");
    }
    if (parsed.username || parsed.password) throw new InvalidInput("give the token as an option, not in the URL");
    if (token !== undefined && !/^[\x21-\x7e]+$/.test(token)) throw new InvalidInput("the token is not one");
    this.#base = `${parsed.origin}${parsed.pathname.replace(/\/+$/, "")}/v1`;
    this.#token = token;
    this.#fetch = fetch ?? ((...given) => globalThis.fetch(...given));
    this.#timeoutMs = Math.min(timeoutMs, TIMER_MS_MAX);
    this.#retryMs = retryMs;
  }

  /**
   * Return the text of an answer; null for 404 if `orNull`.
   *
   * `repeatable`: the request may be sent again though it may have taken effect. `passing`: what it
   * writes may be replaced by others, so that a conflict after a lost answer does not say whether it
   * took effect.
   */
  async request(method, path, { query, headers, body, repeatable = method === "GET", passing, orNull = false } = {}) {
    const pause = pauses(this.#retryMs);
    let isLost = false;
    for (let attempt = 1; ; attempt++) {
      try {
        const numbered = headers?.["idempotency-key"] ? { ...headers, "limpet-attempt": String(attempt) } : headers;
        const { ok, status, text } = await this.#exchange(method, path, { query, headers: numbered, body });
        if (ok) return text;
        const error = problemOf(text, status);
        if (orNull && error instanceof NotFound) return null;
        throw error;
      } catch (cause) {
        const error = cause instanceof LimpetError ? cause : unanswered(cause);
        if (isLost && passing && error instanceof Conflict) {
          throw new Unavailable("an answer was lost, and others have written since: read, and decide", { outcomeKnown: false });
        }
        isLost ||= error instanceof Unavailable && !error.outcomeKnown;
        const may = error instanceof Unavailable && (repeatable || error.outcomeKnown);
        if (!may || !(await pause())) throw error;
      }
    }
  }

  async #exchange(method, path, request) {
    const controller = new AbortController();
    // Not AbortSignal.timeout, whose timers would pile up.
    const late = () => controller.abort(new DOMException("the server did not answer in time", "TimeoutError"));
    const timer = setTimeout(late, this.#timeoutMs);
    try {
      const answer = await this.#send(method, path, { ...request, signal: controller.signal });
      return { ok: answer.ok, status: answer.status, text: await answer.text() };
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * Yield server-sent events as `{event, id, data}`, over as many connections as it takes.
   *
   * Once the server has answered, a lost connection is made again for as long as it takes.
   */
  async *events(path, query, signal) {
    let lastId;
    let pause = pauses(this.#retryMs);
    let isKnown = false; // the server has answered before
    while (!signal.aborted) {
      try {
        for await (const each of this.#connection(path, query, lastId, signal)) {
          // Only an event makes the pauses short again: a proxy may end each connection at once.
          if (!isKnown || each.data !== undefined) pause = pauses(Infinity);
          isKnown = true;
          if (each.id !== undefined) lastId = each.id;
          if (each.event === "error") throw problemOf(each.data);
          if (each.data !== undefined) yield each;
        }
      } catch (cause) {
        if (signal.aborted) return;
        const error = cause instanceof LimpetError ? cause : unanswered(cause);
        if (!(error instanceof Unavailable)) throw error;
        if (!(await pause(signal))) throw error;
        continue;
      }
      if (!(await pause(signal))) return;
    }
  }

  /** Yield the events of one connection; the first is empty and says that the server has answered. */
  async *#connection(path, query, lastId, signal) {
    const controller = new AbortController();
    const stop = () => controller.abort();
    let timer;
    const heard = () => {
      clearTimeout(timer);
      timer = setTimeout(stop, SILENCE_MS_MAX);
    };
    signal.addEventListener("abort", stop);
    try {
      heard();
      const headers = { accept: "text/event-stream", ...(lastId === undefined ? {} : { "last-event-id": lastId }) };
      const answer = await this.#send("GET", path, { query, headers, signal: controller.signal });
      if (!answer.ok) throw problemOf(await answer.text(), answer.status);
      yield {};
      yield* eventsOf(answer.body, heard);
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
      stop();
    }
  }

  #send(method, path, { query, headers, body, signal }) {
    const asked = new URLSearchParams();
    for (const [name, value] of Object.entries(query ?? {})) {
      for (const each of Array.isArray(value) ? value : [value]) {
        if (each !== undefined && each !== null) asked.append(name, String(each));
      }
    }
    const text = asked.toString();
    return this.#fetch(`${this.#base}${path}${text && "?"}${text}`, {
      method,
      headers: {
        ...(this.#token === undefined ? {} : { authorization: `Bearer ${this.#token}` }),
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...headers,
      },
      body,
      signal,
      cache: "no-store",
      redirect: "manual", // a POST would arrive as a GET
    });
  }
}

/** Yield the events of a stream as `{event, id, data}`. */
async function* eventsOf(body, heard) {
  let event = {};
  for await (const line of linesOf(body, heard)) {
    if (line === "") {
      if (event.data !== undefined) yield event;
      event = {};
      continue;
    }
    const [, name, value] = /^([^:]*):? ?(.*)$/s.exec(line);
    if (name === "data") event.data = event.data === undefined ? value : `${event.data}\n${value}`;
    else if (name === "event" || name === "id") event[name] = value;
  }
}

async function* linesOf(body, heard) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const parts = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    heard();
    const [first, ...rest] = decoder.decode(value, { stream: true }).split("\n");
    parts.push(first);
    for (const each of rest) {
      yield parts.splice(0).join("").replace(/\r$/, "");
      parts.push(each);
    }
  }
}

function problemOf(text, status) {
  let problem;
  try {
    problem = JSON.parse(text);
  } catch {
    // Not our server's answer, but a proxy's: its status is all that is known.
  }
  return errorOf(problem, status ?? problem?.status);
}

function unanswered(cause) {
  const code = cause?.cause?.code ?? cause?.code;
  const why = cause?.name === "TimeoutError" ? "in time" : String(code ?? cause?.message ?? cause);
  return new Unavailable(`the server did not answer. reason=\`${why}\``, {
    outcomeKnown: NOT_SENT.has(code),
    cause,
  });
}

/** Return a function that waits longer each time, and resolves to false once `totalMs` are over. */
export function pauses(totalMs, { firstMs = PAUSE_MS_FIRST, longestMs = PAUSE_MS_MAX } = {}) {
  const deadline = performance.now() + totalMs;
  let nextMs = firstMs;
  return async (signal) => {
    const leftMs = deadline - performance.now();
    if (leftMs <= 0 || signal?.aborted) return false;
    await sleep(Math.min(leftMs, nextMs * (0.5 + Math.random() / 2)), signal);
    nextMs = Math.min(nextMs * 2, longestMs);
    return !signal?.aborted;
  };
}

function sleep(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    function done() {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    }
    signal?.addEventListener("abort", done);
  });
}
