"""A token that is bound to a prefix sees and changes nothing outside: in every operation."""

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from operator import methodcaller
from typing import Any

import pytest

import limpet
from limpet.core.operations import OPERATIONS, Operation
from limpet.model import Finding
from limpet.protocol import Claim
from limpet.server.access import Access, Grant, Tokens
from limpet.server.app import App
from tests.cases import for_each
from tests.server.asgi import Response, ask

BOUND, READER, WHOLE = "bound-token-0123456789", "reader-token-0123456789", "whole-token-0123456789"
TOKENS = f"{BOUND} write a/\n{READER} read\n{WHOLE}\n"
SECRET = "S3CRET"  # in everything that is stored outside, and in no request
OUTSIDE = ("b/OUTSIDE", "a", "aOUTSIDE")  # sessions; the second is `under` of the prefix
REQUESTS_EACH = 40  # of an operation

STORE_WIDE = {"refs", "compact", "check", "repair"}  # 403 with a prefix
FREE = {"about", "unlisted"}  # takes no address: it shows what is inside
LISTS = {
    "sessions",
    "newest",
    "scopes",
    "history",
    "watch",
    "changes",
    "revisions",
    "find_notes",
    "stats",
}


def needs_session(operation: Operation) -> bool:
    session = operation.params.get("session_id")
    return session is not None and session.required


async def filled(store: limpet.AsyncStore) -> dict[str, list[Any]]:
    """Fill a store; return the names and ids in it, by the parameters that may hold them."""
    ids: list[Any] = []
    revisions: list[Any] = []
    origin = await store.scope(OUTSIDE[0]).save({"items": ["fine"]})
    await store.scope(OUTSIDE[0]).fork(origin.id, to="a/forked")
    for session in (*OUTSIDE, "a/1"):
        inside = session == "a/1"
        text = "fine" if inside else SECRET
        scope = store.scope(session)
        for _ in range(3):
            info = await scope.save(
                {"items": [text]}, labels={"l": text}, status=text, metadata={"m": text}
            )
            ids.append(info.id)
            revisions.append(info.revision)
            await scope.set_note("n", text, on=info.id)
        await scope.set_note("n", {"v": text})
        if not inside:
            claim = Claim(scope.key, f"key-{SECRET}", SECRET, 10**10, store.driver.tools.draw())
            await store.driver.run(methodcaller("claim", claim))
    return {
        "session_id": [*OUTSIDE, "a/1", "a/forked"],
        "scope_id": ["main"],
        "kind": ["agent"],
        "id": ids,
        "a": ids,
        "b": ids,
        "on": ids,
        "parent": ids,
        "name": ["n"],
        "names": ["n"],
        "prefix": ["", "a", "a/", "b", *OUTSIDE],
        "under": ["", "a", "a/1", "b", *OUTSIDE],
        "to": [*OUTSIDE, "a/2"],
        "id_prefix": ["", ids[0][:8]],
        "after": [*revisions, *OUTSIDE, ""],
        "limit": [0, 1, 2, 1000],
        "replaces": revisions,
        "source": revisions,
        "key": ["items", "some-key"],
        "labels": [{}, {"l": "fine"}],
        "where": [None],
        "status": ["fine"],
        "created_at": ["2026-11-17T09:30:00Z"],
        "ttl_s": [10],
        "stamp": ["1.0123456789abcdef.1"],
    }


class Requests:
    """Requests to an operation, made of its declaration."""

    def __init__(self, names: dict[str, list[Any]], seed: int) -> None:
        self._names = names
        self._random = random.Random(seed)

    def query(self, operation: Operation) -> dict[str, Any]:
        found = {}
        for name, param in operation.params.items():
            if param.required or self._random.random() < 0.6:
                value = self.value(param.schema, name)
                found[name] = json.dumps(value) if name == "labels" else value
        return {k: str(v).lower() if isinstance(v, bool) else v for k, v in found.items()}

    def value(self, schema: Any, name: str) -> Any:
        kinds = schema.get("type", "object")
        kind = kinds if isinstance(kinds, str) else self._random.choice(kinds)
        if kind == "null":
            return None
        if kind == "array":
            count = self._random.randint(1, 3)
            return [self.value(schema["items"], "id" if name == "ids" else name)] * count
        if kind == "object" and "properties" in schema:
            required = schema.get("required", ())
            return {
                each: self.value(below, each)
                for each, below in schema["properties"].items()
                if each in required or self._random.random() < 0.4
            }
        if name in self._names:
            return self._random.choice(self._names[name])
        return {"boolean": True, "integer": 1, "number": 1.5, "object": {}}.get(kind, "text")


def named(value: Any) -> set[str]:
    """Return the sessions that a body names."""
    if isinstance(value, list):
        return set().union(*map(named, value))
    if not isinstance(value, dict):
        return set()
    here = {value[each] for each in ("session_id", "to") if isinstance(value.get(each), str)}
    return here.union(*map(named, value.values()))


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[App, limpet.AsyncStore, dict[str, list[Any]]]]:
    async with limpet.open_async("memory:") as store:
        names = await filled(store)
        yield App(store, Access(Tokens(None, TOKENS))), store, names


async def outside_of(store: limpet.AsyncStore) -> list[Any]:
    """Return everything that is stored outside the prefix."""
    found: list[Any] = []
    for session in OUTSIDE:
        async for scope in store.scopes(session):
            one = store.scope(*scope.key)
            found += [scope, await one.load(), [each async for each in one.history()]]
            found += [each async for each in one.notes()]
            found.append(await store.driver.run(methodcaller("read_lease", one.key, now=0)))
    return found


async def sent(app: App, operation: Operation, query: Any, body: Any, token: str) -> Response:
    bearer = {"authorization": f"Bearer {token}"}
    accept = {"accept": "application/jsonl"} if len(query) % 2 else {}
    return await ask(app, operation.method, operation.path, query, body, **bearer, **accept)


def test_each_operation_is_bound_in_a_known_way() -> None:
    """A new one must be added to a set above, and is then tested below."""
    unbound = {each.name for each in OPERATIONS if not needs_session(each)}
    assert unbound == STORE_WIDE | LISTS | FREE


def test_a_finding_does_not_say_where_the_store_is() -> None:
    found = Finding("error", "damaged", "a row is damaged. file=`/srv/S3CRET.db`", None, None)
    (hidden,) = Grant(prefix="a/").shown([found])
    assert hidden.message == "a row is damaged"
    assert Grant().shown([found]) == [found]


@for_each("operation", OPERATIONS)
async def test_nothing_outside_is_seen_or_changed(
    operation: Operation, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with serving() as (app, store, names):
        before = await outside_of(store)
        requests = Requests(names, seed=7)
        statuses = set()
        goes_on = operation.name in ("watch", "scope_watch", "changes")
        for _ in range(REQUESTS_EACH // 4 if goes_on else REQUESTS_EACH):
            query = requests.query(operation)
            body = None if operation.body is None else requests.value(operation.body, "state")
            answer = await sent(app, operation, query, body, BOUND)
            asked = json.dumps([query, body])
            statuses.add(answer.status)
            assert SECRET.encode() not in answer.body, asked
            for each in OUTSIDE:
                if json.dumps(each) not in asked:
                    assert json.dumps(each).encode() not in answer.body, asked
            assert answer.status < 500, (asked, answer.body)
            if needs_session(operation) and query["session_id"] in OUTSIDE:
                assert answer.status in (400, 403), asked
            if operation.name in STORE_WIDE:
                assert answer.status == 403
            if named(body) & {*OUTSIDE}:
                assert answer.status in (400, 403), asked
        assert await outside_of(store) == before
        # Else the requests prove nothing.
        if operation.name not in FREE:
            assert 403 in statuses, statuses
        if operation.name not in STORE_WIDE:
            assert statuses & {200, 404, 409}, statuses
    assert SECRET not in caplog.text
    assert BOUND not in caplog.text
    assert "OUTSIDE" not in caplog.text


async def test_a_reader_writes_nothing() -> None:
    async with serving() as (app, _, names):
        requests = Requests(names, seed=1)
        for operation in OPERATIONS * 3:
            query = requests.query(operation)
            body = None if operation.body is None else requests.value(operation.body, "state")
            answer = await sent(app, operation, query, body, READER)
            assert (answer.status == 403) == operation.writes, (operation.name, answer.body)


async def test_no_token_no_answer() -> None:
    async with serving() as (app, _, names):
        for operation in OPERATIONS:
            query = Requests(names, seed=1).query(operation)
            for given in ({}, {"authorization": "Bearer no-such-token-0123"}):
                answer = await ask(app, operation.method, operation.path, query, None, **given)
                assert answer.status == 401, operation.name
                assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_metrics_are_not_for_a_bound_token_and_hold_no_names() -> None:
    async with serving() as (app, _, names):
        for operation in OPERATIONS:
            if operation.name not in ("watch", "scope_watch", "changes"):
                query = Requests(names, seed=3).query(operation)
                await sent(app, operation, query, None, WHOLE)
        refused = await ask(app, "GET", "/metrics", authorization=f"Bearer {BOUND}")
        assert refused.status == 403
        found = await ask(app, "GET", "/metrics", authorization=f"Bearer {WHOLE}")
        assert found.status == 200
        assert b'limpet_http_requests_total{operation="load",status="' in found.body
        for each in (SECRET, "OUTSIDE", "a/1", WHOLE, BOUND):
            assert each.encode() not in found.body


@for_each("path", ["/v1/watch", "/v1/changes"])
async def test_changes_outside_are_not_reported(path: str) -> None:
    async with serving() as (app, store, _):
        body = {"topics": [{}, {"prefix": "a"}]} if path == "/v1/changes" else None
        method = "POST" if body else "GET"

        async def writing() -> None:
            await asyncio.sleep(0.1)
            for session in (*OUTSIDE, "a/1"):
                await store.scope(session).save({"now": SECRET})

        work = asyncio.ensure_future(writing())
        answer = await ask(app, method, path, None, body, authorization=f"Bearer {BOUND}")
        await work
        assert b'"a/1"' in answer.body
        assert not any(json.dumps(each).encode() in answer.body for each in OUTSIDE)


@for_each(
    ("operation", "body"),
    [
        ("fork", {"id": "inside", "to": OUTSIDE[0], "scope_id": "new"}),
        ("fork", {"id": "inside", "to": "b/new"}),
        ("save", {"copy": True, "forked_from": {"session_id": OUTSIDE[0], "id": "outside"}}),
        ("save", {"state": 1, "forked_from": {"session_id": OUTSIDE[0], "id": "outside"}}),
    ],
)
async def test_nothing_is_forked_over_the_border(operation: str, body: dict[str, Any]) -> None:
    async with limpet.open_async("memory:") as store:
        await store.scope("a/1").save({"items": ["fine"]}, id="inside")
        outside = await store.scope(OUTSIDE[0]).save({"items": [SECRET]}, id="outside")
        app = App(store, Access(Tokens(None, TOKENS)))
        if "forked_from" in body:
            body["forked_from"] |= {"scope_id": "main", "kind": "agent"}
            body["source"] = outside.revision
        path, query = f"/v1/scope/{operation}", {"session_id": "a/1"}
        for token, status in ((BOUND, 403), (WHOLE, 200)):
            answer = await ask(app, "POST", path, query, body, authorization=f"Bearer {token}")
            assert answer.status == status, answer.body


async def test_an_origin_outside_is_hidden() -> None:
    async with serving() as (app, _, _):
        query = {"session_id": "a/forked"}
        hidden = await ask(app, "GET", "/v1/scope/info", query, authorization=f"Bearer {BOUND}")
        shown = await ask(app, "GET", "/v1/scope/info", query, authorization=f"Bearer {WHOLE}")
        assert hidden.json["forked_from"] is None
        assert shown.json["forked_from"]["session_id"] == OUTSIDE[0]
