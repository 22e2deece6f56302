// A list that grows, as the state of a scope: what frameworks call a session, transcript or chat.
//
// The twin of Python's `limpet.compat.logs`: the state is `{[key]: [item, ...]}`, and each append is a snapshot. A
// framework marks what it saves by a member of the metadata that has its name, and neither reads nor changes what
// another one has marked.

import { contend } from "./client.js";
import { AlreadyExists, Conflict, Corrupt } from "./errors.js";

export const KIND = "conversation";
export const MAIN = "main";

const FRAMEWORKS = {
  adk: "Google ADK",
  ag2: "AG2",
  claude: "the Claude Agent SDK",
  langchain: "LangChain",
  llama_index: "LlamaIndex",
  openai: "the OpenAI Agents SDK",
  pydantic_ai: "Pydantic AI",
  vercel_ai: "the Vercel AI SDK",
};

/** Yield the scopes of a framework, of one session or of those that begin with `prefix`, also those without a head. */
export async function* conversations(store, mark, { sessionId, prefix } = {}) {
  for await (const each of store.scopes(sessionId, { kind: KIND, prefix })) {
    if (each.head === null || mark in each.head.metadata) yield each;
  }
}

/** Refuse a conversation that another framework has saved. */
export function checkOwn(head, mark) {
  if (head === null || mark in head.metadata) return;
  const other = Object.keys(FRAMEWORKS).find((name) => name in head.metadata);
  if (other === undefined) return;
  const { scope } = head;
  throw new AlreadyExists(
    `this is a conversation of ${FRAMEWORKS[other]}, not of ${FRAMEWORKS[mark]}: choose another id. ` +
      `scope=\`${[scope.sessionId, scope.scopeId, scope.kind].join("/")}\``,
    { scope },
  );
}

export class Log {
  #key;
  #mark;
  #idOf;
  #known; // the head as this process saw it last, and the ids of its items
  #last = Promise.resolve();

  /** With `idOf`, an item whose id is in the list already is not appended again. */
  constructor(scope, key, mark, idOf) {
    this.scope = scope;
    this.#key = key;
    this.#mark = mark;
    this.#idOf = idOf;
  }

  /** Return the items; null if nothing was ever written. */
  async read() {
    const found = await this.scope.load();
    return found && this.#itemsOf(found);
  }

  /** Return the head; null if nothing was ever written. */
  async own() {
    return (await this.#readKnown()).head;
  }

  /** Append items, as one step. `describe` gets the head and what is new, and returns the value of the mark. */
  async append(items, describe = () => true) {
    if (items.length > 0) await this.#alone(() => this.#append(items, describe));
  }

  /** Replace all items, as one step. If they only continue the list, what they add is appended. */
  async write(items) {
    await this.#alone(async () => {
      const found = await this.scope.load();
      const before = found ? this.#itemsOf(found) : [];
      const options = { metadata: { [this.#mark]: true }, expect: found?.revision ?? null };
      const isContinued = before.every((item, at) => JSON.stringify(item) === JSON.stringify(items[at]));
      if (found === null || !isContinued) await this.scope.save({ [this.#key]: items }, options);
      else if (items.length > before.length) await this.scope.append(this.#key, items.slice(before.length), options);
    });
  }

  /** Remove the last item and return it; undefined if there is none. History keeps it. */
  async pop() {
    return this.#alone(async () => {
      const found = await this.scope.load();
      const items = found ? this.#itemsOf(found) : [];
      if (items.length === 0) return undefined;
      const { labels, status, revision: expect } = found;
      const metadata = { [this.#mark]: true, ...found.metadata };
      const state = { ...found.state, [this.#key]: items.slice(0, -1) };
      await this.scope.save(state, { labels, status, metadata, expect });
      return items.at(-1);
    });
  }

  /** Make changes one after the other, in the order of the calls, and again if another writer was faster. */
  #alone(change) {
    const done = this.#last.then(() => contend(change, async () => true));
    this.#last = done.catch(() => {});
    return done;
  }

  async #append(items, describe) {
    const known = this.#known ?? (await this.#readKnown());
    this.#known = undefined; // unless this succeeds
    const added = this.#added(items, known.ids);
    const revision = known.head?.revision ?? null;
    let { head } = known;
    if (added.length > 0) {
      const metadata = { [this.#mark]: describe(head, added) };
      head = await this.scope.append(this.#key, added, { metadata, expect: revision });
    } else if (((await this.scope.info())?.revision ?? null) !== revision) {
      throw new Conflict("the log was deleted or changed meanwhile");
    }
    for (const id of this.#ids(added)) known.ids.add(id);
    this.#known = { head, ids: known.ids };
  }

  async #readKnown() {
    if (this.#idOf === undefined) {
      const head = await this.scope.info();
      if (head === null || this.#mark in head.metadata) return { head, ids: new Set() };
    }
    const found = await this.scope.load();
    return { head: found && { ...found, state: undefined }, ids: new Set(found ? this.#ids(this.#itemsOf(found)) : []) };
  }

  /** Return the items that are not known, each id once. */
  #added(items, known) {
    const seen = new Set(known);
    return items.filter((item) => {
      const id = this.#idOf?.(item);
      const isNew = id === undefined || !seen.has(id);
      seen.add(id);
      return isNew;
    });
  }

  #ids(items) {
    return items.map((item) => this.#idOf?.(item)).filter((id) => id !== undefined);
  }

  #itemsOf(found) {
    checkOwn(found, this.#mark);
    const items = found.state?.[this.#key];
    if (Array.isArray(items)) return items;
    throw new Corrupt(
      `this is no conversation of ${FRAMEWORKS[this.#mark]} that this version can read: another program, or a newer ` +
        `version, saved it. session=\`${found.scope.sessionId}\` id=\`${found.id}\``,
      { scope: found.scope, id: found.id },
    );
  }
}
