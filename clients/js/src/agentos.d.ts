import type { Checkpoint, CheckpointMetadata, ICheckpointStore } from "@framers/agentos/orchestration/checkpoint";
import type { Store } from "./index.js";

type PatchState = Parameters<ICheckpointStore["fork"]>[1];

/**
 * AgentOS's `ICheckpointStore` in a Limpet store. Any number of processes may share it.
 *
 * @example
 * const checkpointStore = new CheckpointStore(open("http://127.0.0.1:7420"));
 * const runtime = new GraphRuntime({ checkpointStore, nodeExecutor });
 */
export class CheckpointStore implements ICheckpointStore {
  constructor(store: Store);

  /**
   * Save a checkpoint, durably and in one step. One with the same id is overwritten in place, and moves if the new one
   * belongs to another run or graph.
   *
   * @throws InvalidInput: an id is empty or too long, or a value is not JSON (`path` says which).
   */
  save(checkpoint: Checkpoint): Promise<void>;

  /** Return a checkpoint by its id, also a snapshot that another program saved; null if there is none. */
  get(checkpointId: string): Promise<Checkpoint | null>;

  /**
   * Return the latest checkpoint of a run, or of one of its nodes: that with the greatest timestamp, of equal ones the
   * last saved.
   */
  load(runId: string, nodeId?: string): Promise<Checkpoint | null>;

  /** Return the latest checkpoint of a run: `load` without a node. */
  latest(runId: string): Promise<Checkpoint | null>;

  /** Return the checkpoints of a graph, or of one of its runs, newest first. Without a limit above 0: all. */
  list(graphId: string, options?: { limit?: number; runId?: string }): Promise<CheckpointMetadata[]>;

  /** Delete a checkpoint. Idempotent. */
  delete(checkpointId: string): Promise<void>;

  /**
   * Begin a new run at a checkpoint, and return the id of that run. Its first checkpoint is a copy with a new id; its
   * `forkedFrom` names the source. The patch replaces keys in the partitions `input`, `scratch`, `artifacts` and
   * `diagnostics` of the state.
   *
   * @throws NotFound: there is no such checkpoint.
   */
  fork(checkpointId: string, patchState?: PatchState): Promise<string>;
}
