// Compiled, not run: the types of the store fit those of AgentOS.

import type { ICheckpointStore } from "@framers/agentos/orchestration/checkpoint";
import { CheckpointStore } from "limpet/agentos";
import { open } from "limpet";

export const checkpoints: ICheckpointStore = new CheckpointStore(open("http://127.0.0.1:7420"));
