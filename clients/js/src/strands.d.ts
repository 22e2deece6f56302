import type { Snapshot, SnapshotLocation, SnapshotManifest, SnapshotStorage } from "@strands-agents/sdk";
import type { LimpetError, Store } from "./index.js";

/**
 * The `SnapshotStorage` of the Strands Agents SDK, in a Limpet store.
 *
 * @example
 * const storage = { snapshot: new StoreStorage(open("http://127.0.0.1:7420")) };
 * const sessionManager = new SessionManager({ sessionId: "chat-42", storage });
 */
export class StoreStorage implements SnapshotStorage {
  constructor(store: Store);
  saveSnapshot(params: {
    location: SnapshotLocation;
    snapshotId: string;
    isLatest: boolean;
    snapshot: Snapshot;
  }): Promise<void>;
  loadSnapshot(params: { location: SnapshotLocation; snapshotId?: string }): Promise<Snapshot | null>;
  listSnapshotIds(params: { location: SnapshotLocation; limit?: number; startAfter?: string }): Promise<string[]>;
  deleteSession(params: { sessionId: string }): Promise<void>;
  loadManifest(params: { location: SnapshotLocation }): Promise<SnapshotManifest>;
  saveManifest(params: { location: SnapshotLocation; manifest: SnapshotManifest }): Promise<void>;
}

/** The storage failed, or its data is damaged. The reason is the `cause`. */
export class SessionError extends LimpetError {}
