"""The client in a real browser, on a page of another origin."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.js.serving import CLIENT, serve
from tests.servers.chromium import start_chromium

USED = """
async (url) => {
  const { open, Conflict } = await import("/src/index.js");
  const { LimpetChatStore } = await import("/src/vercel.js");
  const store = open(url);
  const chat = store.scope("chat");
  const first = await chat.save({ messages: ["é😀"] });
  await chat.append("messages", [1]);
  const late = await chat.save({}, { expect: first.revision }).catch((error) => error);
  const chats = new LimpetChatStore(store);
  await chats.save({ chatId: "ui", messages: [{ id: "1", role: "user", parts: [] }] });
  const ids = [];
  for await (const { id } of chat.history()) ids.push(id);
  const messages = (await chats.load("ui")).length;
  const { state } = await chat.load();
  return { state, conflict: late instanceof Conflict, ids: ids.length, messages };
}
"""
WATCH = """
async (url) => {
  const { open } = await import("/src/index.js");
  window.seen = [];
  window.watching = (async () => {
    for await (const info of open(url).scope("chat").watch()) {
      window.seen.push((await open(url).scope("chat").load(info.id)).state);
      if (info.status === "last") return window.seen;
    }
  })();
}
"""
SAVE = """
async ([url, ...given]) => {
  const { open } = await import("/src/index.js");
  await open(url).scope("chat").save(...given);
}
"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def origin() -> Iterator[str]:
    """A web server of the client's files."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(CLIENT)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_it_loads_saves_and_watches(origin: str) -> None:
    with serve("memory:", "--allow-origin", origin) as served, start_chromium() as browser:
        page, other = browser.new_page(), browser.new_page()
        for each in (page, other):
            each.goto(f"{origin}/package.json")
        assert page.evaluate(USED, served.url) == {
            "state": {"messages": ["é😀", 1]},
            "conflict": True,
            "ids": 2,
            "messages": 1,
        }
        page.evaluate(WATCH, served.url)
        page.wait_for_function("window.seen.length === 1")
        other.evaluate(SAVE, [served.url, {"n": 1}, {}])
        page.wait_for_function("window.seen.length === 2")
        other.evaluate(SAVE, [served.url, {"n": 2}, {"status": "last"}])
        assert page.evaluate("window.watching") == [
            {"messages": ["é😀", 1]},
            {"n": 1},
            {"n": 2},
        ]
