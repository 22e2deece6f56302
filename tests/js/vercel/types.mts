// Compiled, not run: the messages and streams are those of the SDK.

import { createUIMessageStreamResponse, UI_MESSAGE_STREAM_HEADERS, type UIMessage, type UIMessageChunk } from "ai";
import { open } from "limpet";
import { LimpetChatStore } from "limpet/vercel";

type Mine = UIMessage<{ by: string }>;
declare const stream: ReadableStream<UIMessageChunk>;

const chats = new LimpetChatStore<Mine>(open("http://127.0.0.1:7420"));
const messages: Mine[] = await chats.load("chat");
await chats.save({ chatId: "chat", messages });
export const answer = createUIMessageStreamResponse({ stream, consumeSseStream: ({ stream }) => chats.record("chat", stream) });
const resumed = await chats.resume("chat");
export const again = new Response(resumed?.pipeThrough(new TextEncoderStream()), { headers: UI_MESSAGE_STREAM_HEADERS });
