// Appends and watches while its server is killed and started again: LIMPET_TEST_URL.
// Prints "ready" when it may be killed, then what was stored and seen.

import { setTimeout as pause } from "node:timers/promises";

import { open } from "../../clients/js/src/index.js";

const chat = open(process.env.LIMPET_TEST_URL).scope("restart");
const seen = [];
const watching = (async () => {
  for await (const { id } of chat.watch()) seen.push(id);
})();

let last;
for (let n = 0; n < 40; n += 1) {
  last = await chat.append("list", [n]);
  if (n === 10) console.log("ready");
  await pause(10);
}
while (seen.at(-1) !== last.id) await pause(10);
const { state } = await chat.load();
await chat.delete();
await watching;
console.log(JSON.stringify({ list: state.list, repeated: seen.length - new Set(seen).size }));
