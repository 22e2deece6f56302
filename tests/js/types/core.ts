// Every method as TypeScript sees it. It is compiled, never run.

import {
  Conflict,
  InvalidInput,
  LimpetError,
  open,
  Unavailable,
  type Diff,
  type Finding,
  type Json,
  type Lease,
  type Note,
  type Pruned,
  type Scope,
  type ScopeInfo,
  type Snapshot,
  type SnapshotInfo,
  type SnapshotRef,
  type Stats,
  type Store,
} from "limpet";

interface Chat {
  messages: string[];
  mood?: string;
}

const store: Store = open(new URL("http://127.0.0.1:7420"), { token: "t", fetch, timeoutMs: 1, retryMs: 1 });
open("http://127.0.0.1:7420");

export async function stores(): Promise<void> {
  const info: SnapshotInfo | null = await store.find("a", { prefix: "b" });
  if (info === null) return;
  const scope: Scope = store.scope(info.scope);
  const ref: SnapshotRef = { scope: scope.key, id: "a" };
  for await (const each of store.history({ limit: 1, after: ref, labels: { a: "b" }, status: "", prefix: "" })) {
    const made: Date = each.createdAt;
    const from: string | undefined = each.forkedFrom?.scope.sessionId;
    void [made, from];
  }
  for await (const each of store.sessions({ limit: 1, after: "a", prefix: "b" })) each.toUpperCase();
  for await (const each of store.scopes("a", { kind: "agent", prefix: "" })) void (each satisfies ScopeInfo).head?.revision;
  for await (const each of store.watch({ sessionId: "a", timeoutS: 1 })) void each.status;
  for await (const each of store.check()) void (each satisfies Finding).code;
  for await (const each of store.repair()) void each.repaired;
  const counts: number[] = [await store.deleteSession("a"), await store.compact()];
  const stats: Stats = await store.stats("a");
  const [name, bytes]: readonly [string, number] = stats.largest[0];
  await store.request("POST", "/scope/notes", { query: { session_id: "a" }, body: { changes: [] }, repeatable: true });
  void [counts, name, bytes];
}

export async function scopes(): Promise<void> {
  const chat = store.scope<Chat>("chat-42", "planner", "agent");
  const saved: SnapshotInfo = await chat.save(
    { messages: [] },
    {
      id: "a",
      parent: null,
      keep: true,
      head: true,
      overwrite: false,
      status: "done",
      labels: { a: "b" },
      metadata: { tokens: 1 },
      createdAt: new Date(),
      forkedFrom: { scope: chat.key, id: "b" },
      expect: null,
    },
  );
  // @ts-expect-error: not a state of this scope
  await chat.save({ messages: 7 });
  // @ts-expect-error: there is no such option
  await chat.save({ messages: [] }, { lables: {} });
  await chat.append("messages", ["hello"], { expect: saved.revision });
  const found: Snapshot<Chat> | null = await chat.load(saved);
  found?.state.messages.push("hi");
  for await (const each of chat.loadMany(["a", saved])) each.state.mood?.trim();
  for await (const each of chat.history({ after: "a" })) void each.parentId;
  for await (const each of chat.ids({ after: saved })) each.trim();
  for await (const each of chat.notedIds()) each.trim();
  for await (const each of chat.ancestors("a")) void each.kept;
  for await (const each of chat.leaves()) void each.size;
  await chat.update("a", ({ state }) => ({ state: { ...state, mood: "calm" }, status: "done" }));
  await chat.update("a", async (snapshot) => (snapshot.status ? null : snapshot));
  // @ts-expect-error: not a state of this scope
  await chat.update("a", () => ({ state: 7 }));
  const fork: Scope<Chat> = await chat.fork("a", { to: "b", scopeId: "c", patch: { mood: "bold" } });
  await fork.fork(saved, { patch: async (state) => ({ ...state, mood: "bold" }) });
  await chat.restore("a", { expect: saved.revision });
  const diff: Diff = await chat.diff("a", "b");
  const pruned: Pruned = await chat.prune({ keepLast: 1, olderThanS: 1, dryRun: true });
  const counts: number[] = [await chat.deleteSnapshot("a"), await chat.delete({ expect: null }), pruned.bytes];
  const note: Note | null = await chat.note("title", { on: saved });
  for await (const each of chat.notes({ on: ["a", saved] })) void each.snapshotId;
  await chat.setNote("title", "Lisbon", { expect: note?.revision ?? null });
  await chat.setNote("seen", (count) => (count ?? 0) + 1);
  const written: Note = await chat.setNote("n", { any: ["value"] });
  counts.push(await chat.deleteNote("title", { on: "a" }), diff.changes.length);
  for await (const each of chat.watch("a", { timeoutS: 1 })) void each.updatedAt;
  const seven: number = await chat.claim({ owner: "one", ttlS: 1, waitS: 1 }, async (lease) => {
    await lease.save({ messages: [] });
    return 7;
  });
  await using lease: Lease<Chat> = await chat.claim({ owner: "two" });
  void [written, lease.token, lease.expiresAt.getTime(), seven];
}

export function errors(error: unknown): Json {
  if (error instanceof Conflict) return [error.expected, error.owner, error.expiresAt?.toISOString() ?? null];
  if (error instanceof InvalidInput) return error.path;
  if (error instanceof Unavailable) return error.outcomeKnown;
  return error instanceof LimpetError ? { status: error.status, id: error.id } : null;
}
