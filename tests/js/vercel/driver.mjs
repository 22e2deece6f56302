// Chats of the Vercel AI SDK with a fake model: `node driver.mjs URL VERB CHAT [TEXT]` prints lines of JSON.

import { convertToModelMessages, createUIMessageStreamResponse, generateId, streamText, toUIMessageStream, validateUIMessages } from "ai";
import { MockLanguageModelV4, simulateReadableStream } from "ai/test";
import { open } from "limpet";
import { LimpetChatStore } from "limpet/vercel";

const [url, verb, chatId, text] = process.argv.slice(2);
const chats = new LimpetChatStore(open(url));
const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
const textOf = ({ parts }) => parts.map((each) => each.text ?? "").join("");

const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
const model = new MockLanguageModelV4({
  async doStream({ prompt }) {
    const words = [`${prompt.length}`, ": ", prompt.at(-1).content[0].text];
    const chunks = [
      { type: "text-start", id: "t" },
      ...words.map((delta) => ({ type: "text-delta", id: "t", delta })),
      { type: "text-end", id: "t" },
      { type: "finish", finishReason: { unified: "stop" }, usage },
    ];
    // With "hang" it never ends.
    const hangs = new ReadableStream({ start: (controller) => chunks.slice(0, 4).forEach((each) => controller.enqueue(each)) });
    return { stream: text === "hang" ? hangs : simulateReadableStream({ chunks }) };
  },
});

const verbs = {
  async turn() {
    const message = { id: generateId(), role: "user", parts: [{ type: "text", text }] };
    const messages = await validateUIMessages({ messages: [...(await chats.load(chatId)), message] });
    await chats.save({ chatId, messages });
    const { stream } = streamText({ model, messages: await convertToModelMessages(messages) });
    const response = createUIMessageStreamResponse({
      stream: toUIMessageStream({
        stream,
        originalMessages: messages,
        generateMessageId: generateId,
        onEnd: async ({ messages }) => chats.save({ chatId, messages }),
      }),
      consumeSseStream: ({ stream }) => chats.record(chatId, stream),
    });
    say("streaming");
    await response.text();
  },
  async resume() {
    const stream = await chats.resume(chatId);
    if (stream === null) return say(null);
    for await (const chunk of stream) {
      say(chunk);
      if (chunk.includes("hang")) process.exit(); // its producer never ends
    }
  },
  async texts() {
    say((await chats.load(chatId)).map(textOf));
  },
};

await verbs[verb]();
