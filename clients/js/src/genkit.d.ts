import type {
  SessionStore as GenkitSessionStore,
  SessionSnapshot,
  SessionStoreOptions,
  SnapshotMutator,
} from "genkit/beta";
import type { Scope, Store } from "./index.js";

export interface Options {
  /** Refuse to name the latest snapshot of a session that has several live branches. */
  rejectBranchingSessions?: boolean;
  /** The latest snapshot of a session: the `leaf` created last (default), or the `newest` by `createdAt` alone. */
  latest?: "leaf" | "newest";
  /** From the context of a call to the name of the tenant, or null for no tenant. By default `context.auth.uid`. */
  prefixOf?: (context: any) => string | null | undefined;
}

/**
 * The `SessionStore` of Genkit, in a Limpet store.
 *
 * A snapshot that has ended keeps its status (`Conflict`); session, parent and `createdAt` of a snapshot never change.
 * The mutator is called again if another process was faster.
 *
 * @example
 * const store = new SessionStore(open("http://127.0.0.1:7420"));
 * const agent = ai.defineAgent({ name: "helper", model, store });
 */
export class SessionStore<S = unknown> implements GenkitSessionStore<S> {
  constructor(store: Store, options?: Options);
  getSnapshot(
    options: SessionStoreOptions & { snapshotId?: string; sessionId?: string },
  ): Promise<SessionSnapshot<S> | undefined>;
  saveSnapshot(
    snapshotId: string | undefined,
    mutator: SnapshotMutator<S>,
    options?: SessionStoreOptions,
  ): Promise<string | null>;
  /** Call a function with a snapshot as it is now, and after each change by any process. Returns what ends it. */
  onSnapshotStateChange(
    snapshotId: string,
    callback: (snapshot: SessionSnapshot<S>) => void,
    options?: SessionStoreOptions,
  ): () => void;
  /** Return the scope of a session: to list its history, fork, watch, prune or delete it. */
  scope(sessionId: string, options?: SessionStoreOptions): Scope;
}
