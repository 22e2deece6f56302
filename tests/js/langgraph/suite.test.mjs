// The published validation suite, with the part that savers may opt into.

import { deltaChannelHistoryTests, validate } from "@langchain/langgraph-checkpoint-validation";
import { open } from "limpet";
import { LimpetSaver } from "limpet/langgraph";

const store = open(process.env.LIMPET_TEST_URL);

const initializer = {
  checkpointerName: "LimpetSaver",
  createCheckpointer: () => new LimpetSaver(store),
  async destroyCheckpointer(saver) {
    const threads = [];
    for await (const id of store.sessions()) threads.push(id);
    for (const id of threads) await saver.deleteThread(id);
  },
};

validate(initializer);
deltaChannelHistoryTests(initializer);
