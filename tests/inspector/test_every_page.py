"""What holds for every page: bound tokens, hostile parameters, HEAD, and no error of the server."""

import asyncio
import json
import logging
import random
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

import limpet
from limpet import inspector
from limpet.core.operations import OPERATIONS as API
from limpet.core.operations import Operation
from limpet.inspector.pages import PAGES
from limpet.server.access import Access, Grant, Tokens
from limpet.server.app import App
from tests.inspector.kit import FORM, got
from tests.server.asgi import Response, ask, page_cookie
from tests.server.test_prefix import OUTSIDE, SECRET, Requests, filled, named, outside_of
from tests.views.document_kit import HOSTILE as HOSTILE_TEXTS
from tests.views.document_kit import UNSEEN, stored

BOUND, READER = "bound-token-0123456789", "reader-token-0123456789"
WHOLE = "whole-token-0123456789"
TOKENS = f"{BOUND} write a/\n{READER} read\n"
ORIGIN = "http://localhost:7420"
REQUESTS_EACH = 30
ENDLESS = "/ui/events"
OPERATIONS = [each for each in PAGES.operations if not each.path.startswith("/ui/static/")]
PRIVATE = [each for each in OPERATIONS if not each.public]
HOSTILE = (
    "", "-1", "9" * 30, "true", "null", "[]", "{}", "a\x00b", "\u202e<script>", "' OR 1=1 --",
    "../../etc/passwd", "%00", "x" * 600, "\ud800", "a,b", "~", "/", "/messages/0", "é" * 512, "0",
)  # fmt: skip


def access() -> Access:
    return Access(Tokens(None, TOKENS))


async def sent(app: App, operation: Operation, query: Any, body: Any, **headers: str) -> Response:
    if operation.body is None:
        return await ask(app, operation.method, operation.path, query, **headers)
    content = urlencode(body, errors="surrogatepass").encode()
    given = {"content_type": FORM, "origin": ORIGIN, **headers}
    return await ask(app, operation.method, operation.path, query, content, **given)


class PageRequests(Requests):
    """Requests to a page, made of its declaration and of what pages take."""

    def __init__(self, names: dict[str, list[Any]], seed: int) -> None:
        more = {
            "q": ["fine", "S", "3CRE", "OUTSID", "items"],
            "keep_last": ["", "0", "1"],
            "older_than_days": ["", "0", "1"],
            "revision": names["replaces"],
            "path": ["", "/items", "/items/0", "/none"],
            "base": ["@", "@~1", *names["session_id"], *names["id"]],
            "name": ["new", "other"],
        }
        super().__init__({**names, **more}, seed)

    def of(self, operation: Operation) -> tuple[Any, Any]:
        """Return a query, and what a form would send."""
        query = self.query(operation)
        return query, None if operation.body is None else self.value(operation.body, "state")

    def value(self, schema: Any, name: str) -> Any:
        if "enum" in schema:
            return self._random.choice(schema["enum"])
        return super().value(schema, name.removeprefix("base_"))


def test_a_bound_token_sees_and_changes_nothing_outside(caplog: pytest.LogCaptureFixture) -> None:
    async def ask_all(operation: Operation) -> None:
        async with limpet.open_async("memory:") as store:
            names = await filled(store)
            app = App(store, access(), PAGES)
            before, statuses = await outside_of(store), set()
            cookie = page_cookie(access(), BOUND)
            requests = PageRequests(names, seed=7)
            for _ in range(4 if operation.path == ENDLESS else REQUESTS_EACH):
                query, body = requests.of(operation)
                answer = await sent(app, operation, query, body, cookie=cookie)
                asked = f"{operation.method} {operation.path} {json.dumps([query, body])}"
                statuses.add(answer.status)
                assert answer.status < 500, (asked, answer.body)
                assert SECRET.encode() not in answer.body, asked
                assert b"memory:" not in answer.body, asked  # where the store is
                for each in OUTSIDE:
                    if "OUTSIDE" in each and each not in asked:
                        assert each.encode() not in answer.body, asked
                if query.get("session_id") in OUTSIDE or named(body) & {*OUTSIDE}:
                    assert answer.status in (400, 403), asked
            assert await outside_of(store) == before, operation.path
            assert statuses & {200, 303, 404, 409}, (operation.path, statuses)  # proves something

    caplog.set_level(logging.INFO)
    for operation in PRIVATE:
        asyncio.run(ask_all(operation))
    assert BOUND not in caplog.text


async def test_a_bound_token_is_not_told_where_the_store_is(tmp_path: Path) -> None:
    """The file is no database, so every operation and every page says what is wrong with it."""
    file = tmp_path / "WHERE" / "agents.db"
    file.parent.mkdir()
    file.write_bytes(b"garbage!" * 1000)
    async with limpet.open_async("memory:") as filled_one:
        names = await filled(filled_one)
    own = {"session_id": ["a/1"], "to": ["a/2"], "prefix": ["a/"], "under": ["a/1"]}
    requests, told = PageRequests({**names, **own}, seed=11), []
    store = limpet.open_async(f"sqlite:///{file}")  # opened by its first use: each request
    for operation in (*API, *PRIVATE):
        if operation.name == "changes":
            continue  # it has no messages, and waits for the storage
        for token in (BOUND, WHOLE):
            app = App(store, Access(Tokens(None, f"{BOUND} write a/\n{WHOLE}")), PAGES)
            query, body = requests.of(operation)
            body = json.dumps(body).encode() if operation in API and body else body
            given = {"authorization": f"Bearer {token}"}
            if operation in API:
                answer = await ask(app, operation.method, operation.path, query, body, **given)
            else:
                answer = await sent(app, operation, query, body, **given)
            if token == WHOLE:
                told.append(b"WHERE" in answer.body)
            else:
                assert b"WHERE" not in answer.body, (operation.path, answer.body)
    assert sum(told) > len(told) / 2, told  # else this proves nothing


def test_what_says_where_a_store_is_is_known() -> None:
    """A variable in the errors of an engine must be added here, or to those that are hidden."""
    folder = Path(limpet.__file__).parent
    files = [folder / "opening.py", *(folder / "backends").rglob("*.py")]
    texts = "".join(each.read_text(encoding="utf-8") for each in files)
    found = {*re.findall(r"\b([a-z_]+)=`", texts)}
    shown = {each for each in found if Grant(prefix="a/").told(f"a fact. {each}=`x`") != "a fact"}
    assert shown <= {
        "bytes", "condition", "connections", "error", "found", "id", "key", "known", "last",
        "lock_wait_s", "min", "name", "needed", "nonce", "option", "pk", "postgres", "prefix",
        "reason", "rev", "scheme", "scope", "seq", "session", "sqlite", "status", "type", "version",
        "waited_s",
    }  # fmt: skip


async def test_no_token_no_page() -> None:
    async with limpet.open_async("memory:") as store:
        requests = PageRequests(await filled(store), seed=1)
        app = App(store, access(), PAGES)
        for operation in PRIVATE:
            query, body = requests.of(operation)
            for given in ({}, {"cookie": "limpet-7420=no-such-token-0123"}):
                answer = await sent(app, operation, query, body, **given)
                assert answer.status == 401, operation.path
                assert b'name="token"' in answer.body, operation.path
            cookie = page_cookie(access(), READER)
            answer = await sent(app, operation, query, body, cookie=cookie)
            is_for_writers = operation.path in ("/ui/fork", "/ui/restore")
            assert (answer.status == 403) == is_for_writers, operation.path


def test_wrong_parameters_are_an_error_page() -> None:
    async def check(app: App, operation: Operation, query: Any, body: Any) -> None:
        answer = await sent(app, operation, query, body)
        asked = operation.path, query, body
        assert answer.status < 500, asked
        if answer.status >= 400:
            assert answer.headers["content-type"].startswith("text/html"), asked
            assert b"<h1>" in answer.body, asked
        assert b"<script>\xe2" not in answer.body, asked
        assert b"\xe2\x80\xae" not in answer.body, asked

    async def check_all(operation: Operation) -> None:
        chance = random.Random(3)
        async with limpet.open_async("memory:") as store:
            requests = PageRequests(await filled(store), seed=3)
            app = App(store, Access(), PAGES)
            for _ in range(4 if operation.path == ENDLESS else 20):
                query, body = requests.of(operation)
                for part in (query, body or {}):
                    for name in part:
                        if chance.random() < 0.5:
                            part[name] = chance.choice(HOSTILE).encode("utf-8", "surrogatepass")
                await check(app, operation, query, body)
            query, body = requests.of(operation)
            for odd in (
                {**query, "unknown": "1"},
                {name: [value, value] for name, value in query.items()},
                {**query, "session_id": "x" * 59_000},
                {**query, "session_id": "x" * 70_000},
            ):
                await check(app, operation, odd, body)
            await check(app, operation, {}, {})
            if body is not None:
                await check(app, operation, query, {**body, "unknown": "<script>\u202e"})
                await check(app, operation, query, dict.fromkeys(body, "y" * 300_000))

    for operation in OPERATIONS:
        asyncio.run(check_all(operation))


async def test_head() -> None:
    async with limpet.open_async("memory:") as store:
        requests = PageRequests(await filled(store), seed=5)
        app = App(store, Access(), PAGES)
        for operation in OPERATIONS:
            if operation.method == "GET":
                query = requests.query(operation)
                head = await ask(app, "HEAD", operation.path, query)
                found = await ask(app, "GET", operation.path, query)
                assert head.status == found.status, operation.path
                assert head.body == b"", operation.path
                assert head.headers["content-type"] == found.headers["content-type"]


def test_what_a_browser_is_sent_is_small_and_comes_with_the_package() -> None:
    folder = Path(inspector.__file__).parent
    files = [*(folder / "static").iterdir(), *(folder / "templates").iterdir()]
    assert sum(each.stat().st_size for each in files) < 200_000
    texts = "".join(each.read_text(encoding="utf-8") for each in files)
    outside = set(re.findall(r"https?://[^\s\"'<]+", texts)) - {"http://www.w3.org/2000/svg"}
    assert outside == set()


def test_a_session_that_looks_like_an_option_is_none_in_a_command() -> None:
    for path in ["session", "fork", "restore"]:
        with limpet.open("memory:") as store:
            first = store.scope("--version").save({"n": 1})
            store.scope("--version").save({"n": 2})
            found = got(store, f"/ui/{path}", {"session_id": "--version", "id": first.id})
        commands = re.findall(r'data-copy="(limpet [^"]*)"', found.body.decode())
        assert commands, path
        assert [each for each in commands if " -- --version" not in each] == [], path


def test_long_names_and_titles_are_cut() -> None:
    long = 300_000 * "x"
    with limpet.open("memory:") as store:
        store.scope("title").save({"n": 1})
        store.scope("title").set_note("title", long)
        store.scope("role").save({"messages": [{"role": long, "content": "hello"}]})
        store.scope("keys").save(dict.fromkeys((f"{n}{long[:9]}" for n in range(20_000)), 1))
        pages = [got(store, "/ui")]
        for path, session_id in (("fork", "title"), ("export", "title"), ("said", "role")):
            pages.append(got(store, f"/ui/{path}", {"session_id": session_id}))
        assert [(each.status, len(each.body) < 50_000) for each in pages] == [(200, True)] * 4


def test_what_is_stored_or_asked_is_text() -> None:
    """No page has tags that it has not with a harmless text."""
    harmless: dict[int, set[str]] = {}
    for text in ("plain", *(" ".join(stored(each).split()) for each in HOSTILE_TEXTS)):
        with limpet.open("memory:") as store:
            scope = store.scope(text, text)
            state = {"messages": [{"role": text, "content": text}], text: text}
            scope.save(state, id=text, status=text, labels={text[:64]: text})
            scope.set_note("title", text)
            here = {"session_id": text}
            pages = [
                ("/session", {**here, "view": "state"}),
                *(("", each) for each in ({}, {"text": text}, {"prefix": text})),
                *(("/search", {"keys": "true", **each}) for each in ({"q": "a"}, {"q": text})),
                ("/search", {"keys": "true", "q": "a", **here}),
                ("/rows", here),
                ("/said", here),
            ]
            for number, (path, query) in enumerate(pages):
                found = got(store, f"/ui{path}", query)
                page = found.body.decode()
                tags = {*re.findall(r"<[^\s>]*", page)}
                assert found.status == 200, (path, text)
                assert tags <= harmless.setdefault(number, tags), (path, text)
                assert not UNSEEN & {*re.sub(r' value="[^"]*"', "", page)}, (path, text)
                assert not re.search(r"""="[^"]*"'""", page), (path, text)  # out of an attribute
