// The classes are what the frameworks ask for. It is compiled, never run.

import type { SnapshotStorage } from "@strands-agents/sdk";
import type { SessionStore as LimpetGenkitStore } from "genkit/beta";
import { open } from "limpet";
import { SessionStore } from "limpet/genkit";
import { SessionError, StoreStorage } from "limpet/strands";

const store = open("http://127.0.0.1:7420");

export const storage: SnapshotStorage = new StoreStorage(store);
export const failed = (error: unknown): boolean => error instanceof SessionError;
export const sessions: LimpetGenkitStore<{ n: number }> = new SessionStore<{ n: number }>(store, {
  latest: "newest",
  rejectBranchingSessions: true,
  prefixOf: (context) => context?.auth?.uid,
});

export async function read(): Promise<number | undefined> {
  // @ts-expect-error: Strands has two scopes
  await storage.loadSnapshot({ location: { sessionId: "a", scope: "tool", scopeId: "b" } });
  return (await sessions.getSnapshot({ sessionId: "a" }))?.state?.custom?.n;
}
