// The `Session` of the OpenAI Agents SDK, in a Limpet store. The class is documented in openai.d.ts.
//
// The layout is that of Python's LimpetSession: the items are those of the Responses API, so that a conversation can be
// continued in either language.

import { OpenAIConversationsSession } from "@openai/agents";
import { KIND, Log, MAIN } from "./logs.js";

const MARK = "openai";

export class LimpetSession {
  #log;

  constructor(sessionId, store, { branch = MAIN } = {}) {
    this.scope = store.scope(sessionId, branch, KIND);
    this.#log = new Log(this.scope, "items", MARK);
  }

  async getSessionId() {
    return this.scope.sessionId;
  }

  async getItems(limit = Infinity) {
    const items = (await this.#log.read()) ?? [];
    return limit > 0 ? fromStored(items.slice(-limit)) : [];
  }

  async addItems(items) {
    await this.#log.append(await toStored(items));
  }

  async popItem() {
    const item = await this.#log.pop();
    return item && (await fromStored([item]))[0];
  }

  async clearSession() {
    if ((await this.#log.own()) === null) return;
    await this.#log.write([]);
    await this.scope.prune({ keepLast: 1 });
  }

  async replaceHistoryWithCompaction(items) {
    await this.#log.write(await toStored(items));
  }

  // What is lost in the form of the Responses API must not count as a difference.

  prepareHistoryItemForModelInput(item) {
    return sdkSession().prepareHistoryItemForModelInput(item);
  }

  prepareHistoryItemsForPersistenceComparison(items) {
    return sdkSession().prepareHistoryItemsForPersistenceComparison(items);
  }

  preserveReasoningItemIdsForPersistence() {
    return sdkSession().preserveReasoningItemIdsForPersistence();
  }
}

/** The SDK converts items only within its session for OpenAI's Conversations API: here with another client. */
function sdkSession(items) {
  return new OpenAIConversationsSession({ conversationId: "none", client: { conversations: { items } } });
}

async function toStored(items) {
  let stored = [];
  const create = async (_, body) => {
    stored = body.items;
  };
  await sdkSession({ create }).addItems(items);
  return stored;
}

async function fromStored(items) {
  const found = items.map((item) => {
    if (typeof item.content !== "string") return sdkSession({ list: () => [{ type: "message", ...item }] }).getItems();
    const content = item.role === "assistant" ? [{ type: "output_text", text: item.content }] : item.content;
    return [{ status: item.role === "assistant" ? "completed" : undefined, ...item, type: "message", content }];
  });
  return (await Promise.all(found)).flat();
}
