// Compiled, not run: the session is what the SDK asks for.

import { Agent, run, type Session } from "@openai/agents";
import { open } from "limpet";
import { LimpetSession } from "limpet/openai";

const session: Session = new LimpetSession("chat", open("http://127.0.0.1:7420"), { branch: "polite" });
const result = await run(new Agent({ name: "helper" }), "hello", { session });
export { result };
