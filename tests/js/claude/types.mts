// Compiled, not run: the store is what the SDK asks for.

import { query, type SessionStore } from "@anthropic-ai/claude-agent-sdk";
import { open } from "limpet";
import { LimpetClaudeStore } from "limpet/claude";

const sessionStore: SessionStore = new LimpetClaudeStore(open("http://127.0.0.1:7420"));
export const found = query({ prompt: "hello", options: { sessionStore, sessionStoreFlush: "eager" } });
