import type { UIMessage } from "ai";
import type { Scope, Store } from "./index.js";

/**
 * Chats of the Vercel AI SDK. Any number of processes may share it.
 *
 * Each save is a snapshot: every earlier moment of a chat can be loaded, compared and forked. A conversation of another
 * framework is neither read nor changed: `AlreadyExists`.
 *
 * @example
 * const chats = new LimpetChatStore(open("http://127.0.0.1:7420"));
 * const messages = [...(await chats.load(chatId)), message];
 * toUIMessageStream({ stream, originalMessages: messages, onEnd: ({ messages }) => chats.save({ chatId, messages }) });
 */
export class LimpetChatStore<Message extends UIMessage = UIMessage> {
  constructor(store: Store);

  /** Return the messages of a chat, none if there is no such chat. */
  load(chatId: string): Promise<Message[]>;

  /** Save the messages of a chat, as one step. What they add to those that are stored is appended. */
  save(chat: { chatId: string; messages: readonly Message[] }): Promise<void>;

  /** Yield the chats whose ids begin with `prefix`, in text order. Reads no messages. */
  list(options?: { prefix?: string }): AsyncGenerator<{ chatId: string; updatedAt: Date }, void, void>;

  /** Delete a chat with its history. */
  delete(chatId: string): Promise<void>;

  /** Return the scope of a chat: its history, to compare, fork or restore. */
  scope(chatId: string): Scope;

  /** Store what is being streamed, for `consumeSseStream`, until the stream ends. The stream before it is replaced. */
  record(chatId: string, stream: ReadableStream<string>): Promise<void>;

  /**
   * Return the stream that is being recorded, by any process, from its beginning; null if there is none. It ends with
   * it, or when nothing was recorded for a minute.
   */
  resume(chatId: string): Promise<ReadableStream<string> | null>;
}
