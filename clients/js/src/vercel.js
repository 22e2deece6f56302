// Chats of the Vercel AI SDK, in a Limpet store. The class is documented in vercel.d.ts.
//
// A chat is a session: its messages are the state of `main`. The answer that is being streamed is a draft in a scope
// next to it, which keeps no history.

import { checkOwn, conversations, KIND, Log, MAIN } from "./logs.js";

const MARK = "vercel_ai";
const STREAM = "stream";
const SILENCE_S_MAX = 60;

export class LimpetChatStore {
  #store;

  constructor(store) {
    this.#store = store;
  }

  async load(chatId) {
    return (await this.#log(chatId).read()) ?? [];
  }

  async save({ chatId, messages }) {
    await this.#log(chatId).write(messages);
  }

  async *list({ prefix } = {}) {
    for await (const { key, head } of conversations(this.#store, MARK, { prefix })) {
      if (head !== null && key.scopeId === MAIN) yield { chatId: key.sessionId, updatedAt: head.updatedAt };
    }
  }

  async delete(chatId) {
    checkOwn(await this.scope(chatId).info(), MARK);
    await this.#store.deleteSession(chatId);
  }

  scope(chatId) {
    return this.#store.scope(chatId, MAIN, KIND);
  }

  async record(chatId, stream) {
    checkOwn(await this.scope(chatId).info(), MARK);
    const scope = this.#stream(chatId);
    const reader = stream.getReader();
    const chunks = [];
    let status = "running";
    await scope.save({ chunks: [] }, { keep: false, parent: null, status });
    const append = () => scope.append("chunks", chunks.splice(0), { keep: false, status });
    let saving = Promise.resolve();
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        if (chunks.push(value) > 1) continue; // while some are saved, more are gathered
        saving = saving.then(append);
        saving.catch(() => reader.cancel());
      }
      await saving;
      status = "completed";
    } catch (error) {
      status = "failed";
      throw error;
    } finally {
      await append();
    }
  }

  async resume(chatId) {
    const scope = this.#stream(chatId);
    const found = await scope.info();
    if (found?.status !== "running" || Date.now() - found.updatedAt > SILENCE_S_MAX * 1_000) return null;
    const changes = scope.watch(null, { timeoutS: SILENCE_S_MAX });
    let sent = 0;
    let isLast = false;
    return new ReadableStream({
      async pull(controller) {
        let chunks = [];
        while (chunks.length === 0 && !isLast) {
          const { done } = await changes.next();
          const now = done ? null : await scope.load();
          isLast = now?.status !== "running";
          chunks = now?.state.chunks.slice(sent) ?? [];
        }
        sent += chunks.length;
        for (const each of chunks) controller.enqueue(each);
        if (isLast) {
          await changes.return();
          controller.close();
        }
      },
      cancel: () => changes.return(),
    });
  }

  #log(chatId) {
    return new Log(this.scope(chatId), "messages", MARK);
  }

  #stream(chatId) {
    return this.#store.scope(chatId, MAIN, STREAM);
  }
}
