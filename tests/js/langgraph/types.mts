// Compiled, not run: the types of the saver fit those of LangGraph.js.

import { MessagesAnnotation, START, StateGraph } from "@langchain/langgraph";
import type { BaseCheckpointSaver, CheckpointTuple } from "@langchain/langgraph-checkpoint";
import { open } from "limpet";
import { LimpetSaver } from "limpet/langgraph";

const saver = new LimpetSaver(open("http://127.0.0.1:7420"));
const base: BaseCheckpointSaver = saver;
const found: CheckpointTuple | undefined = await base.getTuple({ configurable: { thread_id: "t" } });
const graph = new StateGraph(MessagesAnnotation).addNode("a", () => ({})).addEdge(START, "a").compile({ checkpointer: saver });
export { found, graph };
