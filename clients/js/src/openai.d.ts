import type { AgentInputItem, Session } from "@openai/agents";
import type { Scope, Store } from "./index.js";

/**
 * The memory of a conversation, as the `Session` of the OpenAI Agents SDK.
 *
 * What the SDK adds in one step is one snapshot. Nothing is lost if several processes add at once. A conversation of
 * another framework is neither read nor changed: `AlreadyExists`.
 *
 * @example
 * const session = new LimpetSession("chat-42", open("http://127.0.0.1:7420"));
 * const result = await run(agent, "Hello", { session });
 */
export class LimpetSession implements Session {
  /** Open a session, or a branch of it that was made in Python. Nothing is read or written. */
  constructor(sessionId: string, store: Store, options?: { branch?: string });

  /** Where it is stored, with its history. */
  readonly scope: Scope;

  getSessionId(): Promise<string>;

  /** Return the last `limit` items, the oldest first; all without it. */
  getItems(limit?: number): Promise<AgentInputItem[]>;

  /** Append items as one snapshot: all of them are stored when this resolves. */
  addItems(items: AgentInputItem[]): Promise<void>;

  /** Remove the last item and return it. Earlier snapshots keep it; two callers never get the same item. */
  popItem(): Promise<AgentInputItem | undefined>;

  /** Delete all items, also from the history of this branch. */
  clearSession(): Promise<void>;

  /** Replace all items, as one step. */
  replaceHistoryWithCompaction(items: AgentInputItem[]): Promise<void>;

  prepareHistoryItemForModelInput(item: AgentInputItem): AgentInputItem;
  prepareHistoryItemsForPersistenceComparison(items: AgentInputItem[]): AgentInputItem[];
  preserveReasoningItemIdsForPersistence(): boolean;
}
