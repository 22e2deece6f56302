import type { SessionKey, SessionStoreEntry, SessionSummaryEntry } from "@anthropic-ai/claude-agent-sdk";
import type { Scope, Store } from "./index.js";

/**
 * Transcripts of the Claude Agent SDK: its `SessionStore`. Any number of processes may share it.
 *
 * Each append is a snapshot: every earlier moment of a transcript can be loaded, compared and restored. Every method
 * throws `InvalidInput` if the key has no project, session or subpath that can be a name, and `AlreadyExists` if another
 * framework's conversation is there.
 *
 * @example
 * const sessionStore = new LimpetClaudeStore(open("http://127.0.0.1:7420"));
 * for await (const message of query({ prompt: "Go on.", options: { sessionStore, resume: sessionId } })) console.log(message);
 */
export class LimpetClaudeStore {
  constructor(store: Store);

  /** Append entries and fold them into the summary, as one step. One whose `uuid` is there is not appended again. */
  append(key: SessionKey, entries: SessionStoreEntry[]): Promise<void>;

  /** Return the entries in the order in which they were appended, null if there are none. */
  load(key: SessionKey): Promise<SessionStoreEntry[] | null>;

  /** Return the sessions of a project. Reads no transcript. */
  listSessions(projectKey: string): Promise<Array<{ sessionId: string; mtime: number }>>;

  /** Return the summaries of the sessions of a project. A session to which another program has added has none. */
  listSessionSummaries(projectKey: string): Promise<SessionSummaryEntry[]>;

  /** Delete the transcript of a subagent; without `subpath` the session and all in it. */
  delete(key: SessionKey): Promise<void>;

  /** Return the subpaths of a session. */
  listSubkeys(key: { projectKey: string; sessionId: string }): Promise<string[]>;

  /** Return the scope of a transcript: its history, to prune, compare or restore. */
  scope(key: SessionKey): Scope;
}
