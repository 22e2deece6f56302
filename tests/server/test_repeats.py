"""A write that is sent again gets the first answer, and what is remembered is bounded."""

import asyncio

import pytest

import limpet
from limpet.server.access import Access
from limpet.server.app import App
from limpet.server.repeats import Repeats
from tests.server.asgi import ask


def test_a_repetition_waits_for_the_first() -> None:
    async def run() -> None:
        repeats: Repeats[str] = Repeats(len)
        done: list[str] = []
        gate = asyncio.Event()

        async def act(name: str) -> str:
            await gate.wait()
            done.append(name)
            return name

        def send(name: str, *, again: bool, is_final: bool = True) -> "asyncio.Task[str]":
            work = repeats.run("k", lambda: act(name), again=again, is_final=lambda _: is_final)
            return asyncio.ensure_future(work)

        first, second = send("first", again=False), send("second", again=True)
        await asyncio.sleep(0.01)
        gate.set()
        assert [await first, await second] == ["first", "first"]
        assert await send("third", again=True) == "first"
        # Another write with the same key that says it is no repetition; then one that fails.
        assert await send("other", again=False) == "other"
        assert done == ["first", "other"]

    asyncio.run(run())


def test_what_is_not_final_or_was_cancelled_is_done_again() -> None:
    async def run() -> None:
        repeats: Repeats[str] = Repeats(len)

        async def act(name: str) -> str:
            await asyncio.sleep(0.01)
            return name

        def send(name: str) -> "asyncio.Task[str]":
            work = repeats.run("k", lambda: act(name), again=True, is_final=lambda x: x != "busy")
            return asyncio.ensure_future(work)

        cancelled, busy, last = send("cancelled"), send("busy"), send("last")
        await asyncio.sleep(0)
        cancelled.cancel()
        assert await busy == "busy"
        assert await last == "last"
        with pytest.raises(asyncio.CancelledError):
            await cancelled

    asyncio.run(run())


def test_large_answers_are_not_kept_for_long() -> None:
    async def run() -> None:
        repeats: Repeats[bytes] = Repeats(len)

        async def answer() -> bytes:
            return bytes(10 * 2**20)

        for key in range(100):
            await repeats.run(key, answer, again=True, is_final=lambda _: True)
        assert repeats._answers.cost_held <= 64 * 2**20

    asyncio.run(run())


def test_a_repeated_answer_is_compressed_as_its_client_wants() -> None:
    async def run() -> None:
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

    asyncio.run(run())
