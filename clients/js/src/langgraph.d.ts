import type { RunnableConfig } from "@langchain/core/runnables";
import {
  BaseCheckpointSaver,
  type ChannelVersions,
  type Checkpoint,
  type CheckpointListOptions,
  type CheckpointMetadata,
  type CheckpointTuple,
  type PendingWrite,
  type SerializerProtocol,
} from "@langchain/langgraph-checkpoint";
import type { Store } from "./index.js";

/**
 * LangGraph.js's checkpoints in a Limpet store. Any number of graphs and processes may share it.
 *
 * @example
 * const checkpointer = new LimpetSaver(open("http://127.0.0.1:7420"));
 * const graph = builder.compile({ checkpointer });
 */
export class LimpetSaver extends BaseCheckpointSaver<any> {
  /** With a `serde` that does not give JSON, such as one that encrypts, only this language can read the values. */
  constructor(store: Store, serde?: SerializerProtocol);

  /** Return the checkpoint that a config names, else the one with the greatest id. */
  getTuple(config: RunnableConfig): Promise<CheckpointTuple | undefined>;

  /**
   * Yield the checkpoints of a thread or of one namespace, the greatest id first; without a `thread_id` of all threads,
   * the last saved first. `filter` has values that the metadata must have. Equal messages of several checkpoints, and
   * equal items of other lists, are one object: do not change them in place.
   */
  list(config: RunnableConfig, options?: CheckpointListOptions): AsyncGenerator<CheckpointTuple>;

  /** Save a checkpoint, durably and in one step. A checkpoint with the same id is replaced. */
  put(
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    newVersions: ChannelVersions,
  ): Promise<RunnableConfig>;

  /**
   * Save what a task wrote, durably and in one step. Earlier writes of the task stay: one that runs again keeps its
   * first result. Only errors, interrupts and resume values are replaced.
   */
  putWrites(config: RunnableConfig, writes: PendingWrite[], taskId: string): Promise<void>;

  /** Remove all checkpoints and writes of a thread. Idempotent. */
  deleteThread(threadId: string): Promise<void>;
}
