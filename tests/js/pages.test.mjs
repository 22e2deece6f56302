// Histories of more than a page: LIMPET_TEST_URL.

import assert from "node:assert/strict";
import { test } from "node:test";

import { open } from "../../clients/js/src/index.js";

const store = open(process.env.LIMPET_TEST_URL);

async function idsOf(items) {
  const found = [];
  for await (const each of items) found.push(each.id);
  return found;
}

test("histories and ancestors of several pages", async () => {
  const chat = store.scope("long");
  const ids = Array.from({ length: 520 }, (_, at) => `s-${String(at).padStart(3, "0")}`);
  for (const id of ids) await chat.save({ id }, { id });
  const backwards = ids.toReversed();
  assert.deepEqual(await idsOf(chat.history()), backwards);
  assert.deepEqual(await idsOf(store.history()), backwards);
  assert.deepEqual(await idsOf(chat.ancestors("s-519")), backwards);
  assert.deepEqual(await idsOf(chat.loadMany(ids)), ids);
  await chat.deleteSnapshot(backwards[256]);
  assert.deepEqual(await idsOf(chat.ancestors("s-519")), backwards.slice(0, 256));
});
