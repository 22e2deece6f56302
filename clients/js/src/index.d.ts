/// <reference lib="esnext.disposable" />

/** A Limpet store over HTTP, for Node and browsers. Start a server with `limpet serve URL`. */

/** Any JSON value. Integers beyond 2^53 written by other languages lose digits in JavaScript. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json | undefined };

export interface OpenOptions {
  /** What the server asks for as `Authorization: Bearer`. */
  token?: string;
  /** By default the global `fetch`. */
  fetch?: typeof globalThis.fetch;
  /** How long one request may take. Default: 60 seconds. */
  timeoutMs?: number;
  /** How long requests that may be repeated are tried again while the server cannot be reached. Default: 30 seconds. */
  retryMs?: number;
}

/**
 * Open a store. It does no I/O.
 *
 * Reads, saves, and writes of notes without `expect` are repeated if the server cannot be reached; a save never counts
 * twice. Other writes whose answer was lost throw `Unavailable` with `outcomeKnown: false`.
 *
 * @example
 * const store = open("http://127.0.0.1:7420");
 * await store.scope("chat-42").save({ messages: [] });
 */
export function open(url: string | URL, options?: OpenOptions): Store;

/** The address of a scope. */
export interface ScopeKey {
  readonly sessionId: string;
  readonly scopeId: string;
  readonly kind: string;
}

/** The address of one snapshot. */
export interface SnapshotRef {
  readonly scope: ScopeKey;
  readonly id: string;
}

/** How methods take a snapshot: its id, what `save`, `history` or `load` gave, or its address. */
export type SnapshotLike = string | SnapshotRef;

/** Everything about a snapshot except its state. */
export interface SnapshotInfo extends SnapshotRef {
  /** The snapshot that it follows, which may have been deleted; null for a root. */
  readonly parentId: string | null;
  /** The snapshot that this one is a copy of, if it began a fork. */
  readonly forkedFrom: SnapshotRef | null;
  readonly status: string;
  readonly labels: Record<string, string>;
  readonly metadata: Record<string, any>;
  /** Times are rounded down to milliseconds. */
  readonly createdAt: Date;
  readonly updatedAt: Date;
  /** Opaque text that names this version; pass it as `expect`. */
  readonly revision: string;
  /** Whether it is in history; false for a draft. */
  readonly kept: boolean;
  /** The bytes of the encoded state. */
  readonly size: number;
}

/** A snapshot with its state. */
export interface Snapshot<State = any> extends SnapshotInfo {
  readonly state: State;
}

/** A scope and its head, which is null if there are only notes or a lease. */
export interface ScopeInfo {
  readonly key: ScopeKey;
  readonly head: SnapshotInfo | null;
}

/** A small named document of a scope, or of one snapshot id. */
export interface Note {
  readonly name: string;
  readonly value: any;
  readonly revision: string;
  readonly updatedAt: Date;
  readonly snapshotId: string | null;
}

export interface Stats {
  readonly sessions: number;
  readonly scopes: number;
  readonly snapshots: number;
  /** The sum of the encoded states. */
  readonly logicalBytes: number;
  /** What they take in the engine. */
  readonly storedBytes: number;
  /** The largest parts with their bytes. */
  readonly largest: readonly (readonly [string, number])[];
}

/** Something that `check` found. */
export interface Finding {
  readonly severity: "error" | "warning" | "info";
  readonly code: string;
  readonly message: string;
  readonly scope: ScopeKey | null;
  readonly id: string | null;
  readonly repaired: boolean;
}

/** One difference between two states. `path` is a JSON Pointer; for "moved", `before` and `after` are pointers too. */
export interface Change {
  readonly path: string;
  readonly kind: "added" | "removed" | "changed" | "moved";
  readonly before: any;
  readonly after: any;
}

/** What changed from one state to another, and the same as RFC 6902 operations. */
export interface Diff {
  readonly changes: readonly Change[];
  readonly patch: readonly PatchOperation[];
}

export interface PatchOperation {
  readonly op: "add" | "remove" | "replace" | "move";
  readonly path: string;
  readonly from?: string;
  readonly value?: any;
}

/** How many snapshots were (or would be) deleted, and the bytes of their states. */
export interface Pruned {
  readonly count: number;
  readonly bytes: number;
}

/** Ends at once when the loop is left, or when `return()` is called. */
export interface Watch extends AsyncIterableIterator<SnapshotInfo> {
  return(value?: any): Promise<IteratorResult<SnapshotInfo>>;
}

export interface RequestOptions {
  query?: Record<string, string | number | boolean | readonly string[] | null | undefined>;
  headers?: Record<string, string>;
  /** A JSON value, or as a string JSON text. */
  body?: unknown;
  /** Whether the request may be sent again though it may have taken effect. Default: only GET. */
  repeatable?: boolean;
  /** Return null instead of throwing NotFound. */
  orNull?: boolean;
}

/** An opened store: the object that everything starts from. Made by `open`. */
export class Store {
  private constructor();

  /** Return a scope. Checks the ids, does no I/O and creates nothing. */
  scope<State = any>(sessionId: string, scopeId?: string, kind?: string): Scope<State>;
  scope<State = any>(key: { sessionId: string; scopeId?: string; kind?: string }): Scope<State>;

  /** Return the last saved kept snapshot with this id in any scope, or null. */
  find(snapshotId: SnapshotLike, options?: { prefix?: string }): Promise<SnapshotInfo | null>;

  /** Yield kept snapshots of all sessions whose id begins with `prefix`, the last saved first. */
  history(options?: {
    limit?: number;
    /** Continue after this snapshot. */
    after?: SnapshotRef;
    /** Only snapshots with this id, in any scope. */
    id?: string;
    /** Only snapshots that have all of these labels. */
    labels?: Record<string, string>;
    status?: string;
    prefix?: string;
  }): AsyncGenerator<SnapshotInfo, void, void>;

  /** Yield session ids in text order. */
  sessions(options?: { limit?: number; after?: string; prefix?: string }): AsyncGenerator<string, void, void>;

  /** Yield scopes with their heads, ordered by session, kind and scope id. */
  scopes(sessionId?: string, options?: { kind?: string; prefix?: string }): AsyncGenerator<ScopeInfo, void, void>;

  /**
   * Yield the heads of many scopes, and again after each change by any process.
   *
   * With `snapshotId` instead the snapshot with this id, as soon as it exists. It ends when the session or snapshot is
   * deleted, and with `timeoutS` after so many seconds without a change.
   */
  watch(options?: { sessionId?: string; snapshotId?: SnapshotLike; prefix?: string; timeoutS?: number }): Watch;

  /** Delete everything of one session; return the number of snapshots. */
  deleteSession(sessionId: string): Promise<number>;

  /** Give unused space back to the system; return the bytes. */
  compact(): Promise<number>;

  /** Return the size of the store, or of one session, and its largest parts. */
  stats(sessionId?: string): Promise<Stats>;

  /** Read everything stored and yield what is damaged. Changes nothing. */
  check(): AsyncGenerator<Finding, void, void>;

  /** Check, and repair what can be repaired without losing anything: iterate to the end. */
  repair(): AsyncGenerator<Finding, void, void>;

  /** Send a request below `/v1` and return the parsed answer: for operations that have no method here. */
  request(method: string, path: string, options?: RequestOptions): Promise<any>;
}

export interface SaveOptions {
  /** Unique in the scope; the same content under it again changes nothing. By default a new one is generated. */
  id?: string | null;
  /** The snapshot that this one follows; null for a root. By default the head. */
  parent?: SnapshotLike | null;
  /** False for a draft, which is not in history and gone when the head moves. */
  keep?: boolean;
  /** False to keep it only, without making it the head. */
  head?: boolean;
  /** Replace the snapshot with this id, at its place; the head does not move. */
  overwrite?: boolean;
  /** Short text to filter by. */
  status?: string;
  /** Short texts to filter by. */
  labels?: Record<string, string>;
  /** Any JSON to store with the state and list without it. */
  metadata?: Record<string, unknown>;
  /** For imports: when it was made. */
  createdAt?: Date | string;
  /** For imports: what it is a copy of. */
  forkedFrom?: SnapshotRef | null;
  /** The revision that the head must have; null: there must be no head yet. */
  expect?: string | null;
}

/** What `update` takes of the snapshot that its function returns; what is not given stays. */
export interface Replacement<State = any> {
  state?: State;
  status?: string;
  labels?: Record<string, string>;
  metadata?: Record<string, unknown>;
}

type Replaced<State> = Replacement<State> | null | undefined;

/** One line of state inside a session, with its history. Made by `Store.scope`. */
export class Scope<State = any> {
  protected constructor();

  readonly sessionId: string;
  readonly scopeId: string;
  readonly kind: string;
  readonly key: ScopeKey;

  /**
   * Save a state as a new snapshot. Atomic, and durable when it resolves.
   *
   * Throws `AlreadyExists` if the id exists with other content, `Conflict` if the head does not have the revision
   * `expect`, and `InvalidInput` with its `path` for a value that is not JSON: a BigInt, NaN, a function, a Map,
   * undefined in an array. Undefined members are left out, as by `JSON.stringify`.
   */
  save(state: State, options?: SaveOptions): Promise<SnapshotInfo>;

  /** Save the head's state with `items` appended to the list under a top-level key. */
  append(
    key: string,
    items: readonly unknown[],
    options?: Pick<SaveOptions, "keep" | "status" | "labels" | "metadata" | "expect">,
  ): Promise<SnapshotInfo>;

  /** Return a snapshot with its state, by default the head; null if there is none. */
  load(id?: SnapshotLike | null): Promise<Snapshot<State> | null>;

  /** Yield snapshots with their states, in this order; missing ones are skipped. */
  loadMany(ids: Iterable<SnapshotLike> | AsyncIterable<SnapshotLike>): AsyncGenerator<Snapshot<State>, void, void>;

  /** Return a snapshot without its state, by default the head; null if there is none. */
  info(id?: SnapshotLike | null): Promise<SnapshotInfo | null>;

  /** Yield kept snapshots, the last saved first. Throws NotFound if `after` is an id that does not exist. */
  history(options?: {
    limit?: number;
    /** Continue after this snapshot: its id, or its info even if it was deleted. */
    after?: SnapshotLike | null;
    /** Only snapshots that have all of these labels. */
    labels?: Record<string, string>;
    status?: string;
  }): AsyncGenerator<SnapshotInfo, void, void>;

  /** Yield kept ids in text order, those greater than `after`, which need not exist. */
  ids(options?: { after?: SnapshotLike | null; limit?: number }): AsyncGenerator<string, void, void>;

  /** Yield the snapshot ids that have notes, in text order. */
  notedIds(options?: { after?: SnapshotLike | null; limit?: number }): AsyncGenerator<string, void, void>;

  /** Yield a snapshot, its parent, and so on. Throws NotFound if there is no such snapshot. */
  ancestors(id: SnapshotLike): AsyncGenerator<SnapshotInfo, void, void>;

  /** Yield the kept snapshots without kept children, the last saved first. */
  leaves(): AsyncGenerator<SnapshotInfo, void, void>;

  /**
   * Change one snapshot in place, atomically. The head and the order of history stay as they are.
   *
   * `fn` gets the snapshot and returns what is to be replaced, or null to change nothing. It is called again if another
   * writer changed the snapshot meanwhile. Throws NotFound if there is no such snapshot.
   *
   * @example
   * await chat.update("step-7", ({ state }) => ({ state: { ...state, mood: "calm" }, status: "done" }));
   */
  update(
    id: SnapshotLike,
    fn: (snapshot: Snapshot<State>) => Replaced<State> | Promise<Replaced<State>>,
  ): Promise<SnapshotInfo | null>;

  /**
   * Begin a new scope with the state of an existing snapshot.
   *
   * `patch` replaces top-level keys, or is a function from state to state, which may be called again. Throws NotFound,
   * and AlreadyExists if the new scope already holds something.
   */
  fork(
    id: SnapshotLike,
    options?: {
      /** The session of the new scope; by default this session. */
      to?: string;
      /** By default `<scopeId>~<8 letters and digits>`, in another session the same name. */
      scopeId?: string;
      patch?: Partial<State> | ((state: State) => State | Promise<State>);
      labels?: Record<string, string>;
      metadata?: Record<string, unknown>;
    },
  ): Promise<Scope<State>>;

  /** Save the state of an earlier snapshot as a new head, with that snapshot as parent. */
  restore(id: SnapshotLike, options?: Pick<SaveOptions, "labels" | "metadata" | "expect">): Promise<SnapshotInfo>;

  /** Return the changes from the state of `a` to that of `b`, two snapshots of this scope. */
  diff(a: SnapshotLike, b: SnapshotLike): Promise<Diff>;

  /** Delete snapshots outside the newest `keepLast` and older than `olderThanS` seconds; never the head. */
  prune(options: { keepLast?: number; olderThanS?: number; dryRun?: boolean }): Promise<Pruned>;

  /** Delete one snapshot and the notes on its id; return 1, or 0 if there was none. */
  deleteSnapshot(id: SnapshotLike): Promise<number>;

  /** Delete the whole scope with its notes; return the number of snapshots. */
  delete(options?: { expect?: string | null }): Promise<number>;

  /** Return a note of the scope, or of a snapshot (`on`); null if there is none. */
  note(name: string, options?: { on?: SnapshotLike | null }): Promise<Note | null>;

  /** Yield the notes of the scope, or of these snapshots, by name. */
  notes(options?: { on?: SnapshotLike | Iterable<SnapshotLike> | null }): AsyncGenerator<Note, void, void>;

  /**
   * Write a note. A function gets the current value (null if there is none) and returns the next one, or null to change
   * nothing; it may be called again.
   */
  setNote(name: string, fn: (value: any) => unknown, options?: NoteOptions): Promise<Note | null>;
  setNote(name: string, value: unknown, options?: NoteOptions): Promise<Note>;

  /** Delete a note; return 1, or 0 if there was none. */
  deleteNote(name: string, options?: { on?: SnapshotLike | null }): Promise<number>;

  /**
   * Yield the head, or the snapshot `id`, and again after each change by any process. The current one comes first; it
   * need not exist yet. Versions in between may be skipped, the last never. Lost connections are made again. It ends
   * when what is watched is deleted, and with `timeoutS` after so many seconds without a change.
   */
  watch(id?: SnapshotLike | null, options?: { timeoutS?: number }): Watch;

  /**
   * Hold the lease of this scope while `fn` runs, or until `release()`; it is renewed in the background.
   *
   * Only one caller holds it at a time; once another holds it, every write through this one throws Conflict. Throws
   * Conflict if another caller still holds it after `waitS` seconds.
   *
   * @example
   * await chat.claim({ owner: "worker-1", waitS: 5 }, async (lease) => lease.save({ step: 1 }));
   * await using lease = await chat.claim({ owner: "worker-1" });
   */
  claim<T>(options: ClaimOptions, fn: (lease: Lease<State>) => Promise<T> | T): Promise<T>;
  claim(options: ClaimOptions): Promise<Lease<State>>;
}

export interface NoteOptions {
  /** The snapshot to put it on, which need not exist yet; by default the scope. */
  on?: SnapshotLike | null;
  /** The revision that the note must have; null: it must not exist yet. */
  expect?: string | null;
}

export interface ClaimOptions {
  /** A name for people to read. */
  owner: string;
  /** How long the lease lasts without renewal. Default: 30 seconds. */
  ttlS?: number;
  /** How long to wait for another holder. Default: 0. */
  waitS?: number;
}

/** A scope whose every write carries a lease. Made by `Scope.claim`. */
export class Lease<State = any> extends Scope<State> {
  /** The unique key of the lease. */
  readonly token: string;
  /** When the lease ends unless it is renewed, by the clock of this machine. */
  readonly expiresAt: Date;
  /** Release the lease. May be repeated. */
  release(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** The base of all errors. A token that is not accepted is such a one, with `status` 401 or 403. */
export class LimpetError extends Error {
  constructor(message: string, fields?: object);
  readonly scope: ScopeKey | null;
  readonly id: string | null;
  readonly status?: number;
}

/** There is nothing with this id. Treat it as absent. */
export class NotFound extends LimpetError {}

/** The id exists with other content, or the name is taken. Choose another. */
export class AlreadyExists extends LimpetError {}

/** Another writer changed what was compared, or holds the lease. Nothing was stored: read, decide, retry. */
export class Conflict extends LimpetError {
  readonly expected: string | null;
  readonly found: string | null;
  readonly owner: string | null;
  readonly expiresAt: Date | null;
}

/** An argument is not valid. Nothing was stored: fix the call. */
export class InvalidInput extends LimpetError {
  /** Where the refused value is, as a JSON Pointer; null if it is about something else. */
  readonly path: string | null;
}

/** This engine cannot do it. Choose another. */
export class Unsupported extends LimpetError {}

/** The server or its storage did not answer. Retry later. */
export class Unavailable extends LimpetError {
  /** True if the write certainly did not happen; false if it may have: repeat it with the same id. */
  readonly outcomeKnown: boolean;
}

/** Stored bytes fail their checksum. Run `limpet check`. */
export class Corrupt extends LimpetError {}
