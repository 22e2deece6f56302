"""A write that is sent again gets the first answer, and what is remembered is bounded."""

import asyncio
from typing import Any

import pytest

import limpet
from limpet.server.access import Access
from limpet.server.app import App
from limpet.server.repeats import Repeats
from tests.cases import for_each
from tests.server.asgi import ask


async def test_a_repeated_answer_is_compressed_as_its_client_wants() -> None:
    async with limpet.open_async("memory:") as store:
        app = App(store, Access())
        query, value = {"session_id": "s", "name": "n"}, "x" * 5000
        packed = await ask(
            app,
            "PUT",
            "/v1/scope/note",
            query,
            value,
            idempotency_key="k",
            accept_encoding="gzip",
        )
        plain = await ask(app, "PUT", "/v1/scope/note", query, value, idempotency_key="k")
        assert packed.headers["content-encoding"] == "gzip"
        assert "content-encoding" not in plain.headers
        assert plain.json["value"] == value


SAVE, NOTE, SESSION = "/v1/scope/save", "/v1/scope/note", {"session_id": "s"}


@for_each(
    ("method", "path", "query", "body", "headers"),
    [
        ("POST", SAVE, SESSION, {"state": 2}, {}),
        ("POST", SAVE, {"session_id": "t"}, {"state": 1}, {}),
        ("POST", SAVE, SESSION, {"state": 1}, {"if_none_match": "*"}),
        ("POST", "/v1/scope/append", SESSION, {"key": "k", "items": [1]}, {}),
        ("PUT", NOTE, {**SESSION, "name": "n"}, {"state": 1}, {}),
        ("DELETE", "/v1/scope", SESSION, None, {}),
    ],
)
@for_each("attempt", [{}, {"limpet_attempt": "1"}])
async def test_a_key_is_good_for_one_request(
    method: str, path: str, query: Any, body: Any, headers: dict[str, str], attempt: dict[str, str]
) -> None:
    async with limpet.open_async("memory:") as store:
        app = App(store, Access())
        first = await ask(app, "POST", SAVE, SESSION, {"state": 1}, idempotency_key="k")
        other = await ask(app, method, path, query, body, idempotency_key="k", **headers, **attempt)
        assert (first.status, other.status) == (200, 422)
        assert other.headers["content-type"] == "application/problem+json"
        assert other.json["title"] == "InvalidInput"
        assert "Idempotency-Key" in other.json["detail"]
        again = await ask(app, "POST", SAVE, SESSION, {"state": 1}, idempotency_key="k")
        assert again.body == first.body
        assert [each.revision async for each in store.history()] == [first.json["revision"]]


async def test_what_is_not_final_or_was_cancelled_is_done_again() -> None:
    repeats: Repeats[str] = Repeats(len)

    async def act(name: str) -> str:
        await asyncio.sleep(0.01)
        return name

    def send(name: str) -> "asyncio.Task[str]":
        work = repeats.run("k", "", lambda: act(name), again=True, is_final=lambda x: x != "busy")
        return asyncio.ensure_future(work)

    cancelled, busy, last = send("cancelled"), send("busy"), send("last")
    await asyncio.sleep(0)
    cancelled.cancel()
    assert (await busy, await last) == ("busy", "last")
    with pytest.raises(asyncio.CancelledError):
        await cancelled


async def test_large_answers_are_not_kept_for_long() -> None:
    repeats: Repeats[bytes] = Repeats(len)

    async def answer() -> bytes:
        return bytes(10 * 2**20)

    for key in range(100):
        await repeats.run(key, "", answer, again=True, is_final=lambda _: True)
    assert repeats._answers.cost_held <= 64 * 2**20


async def test_a_key_is_taken_while_its_request_is_under_way() -> None:
    async with limpet.open_async("memory:") as store:
        app = App(store, Access())
        sent = [
            ask(app, "POST", SAVE, SESSION, {"state": n}, idempotency_key="k") for n in range(9)
        ]
        found = [each.status for each in await asyncio.gather(*sent)]
        assert sorted(found) == [200] + [422] * 8
        assert len([each async for each in store.history()]) == 1


async def test_a_repetition_waits_for_the_first() -> None:
    async with limpet.open_async("memory:") as store:
        app, headers = App(store, Access()), {"idempotency_key": "k"}
        sent = [ask(app, "POST", SAVE, SESSION, {"state": 1}, **headers) for _ in range(9)]
        cancelled = asyncio.ensure_future(ask(app, "POST", SAVE, SESSION, {"state": 1}, **headers))
        await asyncio.sleep(0)
        cancelled.cancel()
        answers = await asyncio.gather(*sent)
        assert {each.status for each in answers} == {200}
        assert len({each.body for each in answers}) == 1
        assert len([each async for each in store.history()]) == 1


async def test_another_server_does_not_take_another_body_for_the_same_write() -> None:
    """It has forgotten the key, and searches the store for what the first request wrote."""
    async with limpet.open_async("memory:") as store:
        states = []
        for state in (1, 1, 2):
            app = App(store, Access())
            answer = await ask(app, "POST", SAVE, SESSION, {"state": state}, idempotency_key="k")
            assert answer.status == 200
        async for info in store.history():
            found = await store.scope("s").load(info.id)
            states.append(found and found.state)
        assert states == [2, 1]


async def test_a_stamp_is_of_one_verb_and_may_have_several_requests() -> None:
    """An `update` whose first attempt conflicts: the answer of that is not that of the next."""
    stamp = {"limpet_stamp": "1.0123456789abcdef.1", "idempotency_key": "0123456789abcdef"}
    async with limpet.open_async("memory:") as store:
        app, head = App(store, Access()), await store.scope("s").save(0)
        refused = await ask(app, "POST", SAVE, SESSION, {"state": 1}, if_match='"1.0.a"', **stamp)
        fresh = {"if_match": f'"{head.revision}"', **stamp}
        stored = await ask(app, "POST", SAVE, SESSION, {"state": 1}, **fresh)
        assert (refused.status, stored.status) == (412, 200)
        again = await ask(app, "POST", SAVE, SESSION, {"state": 1}, **fresh)
        assert again.body == stored.body
