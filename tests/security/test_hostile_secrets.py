"""Passwords, tokens and keys, and what states hold, are in no message, `repr`, log or traceback."""

import asyncio
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import limpet
from tests.cases import for_each
from tests.cli.conftest import Command, command  # noqa: F401
from tests.security.test_hostile_json import committed

SECRET = "hunter2-Zq9"
GONE = "127.0.0.1:1"  # no server listens there

# In each of them the secret is where a person has it, and something is wrong.
URLS: dict[str, tuple[str, dict[str, Any]]] = {
    "postgres, no server": (f"postgresql://bob:{SECRET}@{GONE}/db?retry_s=0", {}),
    "postgres, in the query": (f"postgresql://{GONE}/db?user=bob&password={SECRET}", {}),
    "postgres, bad port": (f"postgresql://bob:{SECRET}@host:port/db", {}),
    "postgres, bad option": (f"postgresql://bob:{SECRET}@{GONE}/db?nonsense=1", {}),
    "postgres, bad value": (f"postgresql://bob:{SECRET}@{GONE}/db?connections=none", {}),
    "postgres, slash in it": (f"postgresql://bob:a/{SECRET}@{GONE}/db", {}),
    "postgres, by name": (f"postgresql://{GONE}/db", {"password": SECRET}),
    "postgres, no host": (f"postgresql://bob:{SECRET}@no-such-host.invalid/db", {}),
    "s3, no server": (
        f"s3://bucket/x?endpoint_url=http://{GONE}&retry_s=0.1&timeout_s=0.1"
        f"&access_key_id=id&secret_access_key={SECRET}",
        {},
    ),
    "s3, by name": (
        f"s3://bucket/x?endpoint_url=http://{GONE}&retry_s=0.1&timeout_s=0.1",
        {"access_key_id": "id", "secret_access_key": SECRET},
    ),
    "s3, bad option": (f"s3://bucket/x?secret_access_key={SECRET}&nonsense=1", {}),
    "s3, half a key": (f"s3://bucket/x?secret_access_key={SECRET}", {}),
    "s3, in the endpoint": (f"s3://b/x?endpoint_url=http://id:{SECRET}@{GONE}&retry_s=0.1", {}),
    "http, no server": (f"http://{GONE}?token={SECRET}&retry_s=0.1&timeout_s=0.1", {}),
    "http, by name": (f"http://{GONE}?retry_s=0.1", {"token": SECRET}),
    "http, in the address": (f"http://bob:{SECRET}@{GONE}?retry_s=0.1", {}),
    "http, bad token": (f"http://{GONE}", {"token": f"{SECRET}\n"}),
    "http, bad option": (f"http://{GONE}?token={SECRET}&nonsense=1", {}),
    "no scheme": (f"postgres//bob:{SECRET}@host/db", {}),
    "unknown scheme": (f"mysql://bob:{SECRET}@host/db", {}),
    "bad escape": (f"postgresql://bob:{SECRET}%ff@host/db", {}),
    "sqlite, unknown option": (f"sqlite:///x.db?key={SECRET}", {}),
}


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "LIMPET_URL"):
        monkeypatch.delenv(name, raising=False)


def causes(error: BaseException) -> list[BaseException]:
    """Return an error and those that are printed with it."""
    found: list[BaseException] = []
    each: BaseException | None = error
    while each is not None:
        found.append(each)
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return found


def printed(error: BaseException) -> str:
    """Return all that a program or a person may print of an error, with its causes."""
    texts = [text for each in causes(error) for text in (str(each), repr(each))]
    return "\n".join((*traceback.format_exception(error), *texts, repr(vars(error))))


def use(url: str, options: dict[str, Any]) -> str:
    """Return everything printed of a store that cannot be used."""
    seen: list[str] = []
    try:
        with limpet.open(url, **options) as store:
            seen += (repr(store), str(store), repr(store.scope("s")))
            store.scope("s").save({"n": 1})
    except limpet.LimpetError as error:
        seen.append(printed(error))

    async def use_async() -> None:
        async with limpet.open_async(url, **options) as store:
            seen.append(repr(store))
            await store.scope("s").load()

    try:
        asyncio.run(use_async())
    except limpet.LimpetError as error:
        seen.append(printed(error))
    assert seen
    return "\n".join(seen)


# The source lines in a traceback are ours, and none of them has a secret in it.
@pytest.mark.slow
@pytest.mark.parametrize("name", URLS)
def test_a_store_that_cannot_be_used_says_no_secret(
    name: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    url, options = URLS[name]
    assert SECRET not in use(url, options)
    assert SECRET not in caplog.text
    out, err = capfd.readouterr()
    assert SECRET not in out + err


@pytest.mark.slow
@pytest.mark.parametrize("name", [each for each in URLS if not URLS[each][1]])
def test_the_command_says_no_secret(name: str, command: Command) -> None:  # noqa: F811
    for verb in (["ls"], ["doctor"], ["doctor", "--json"], ["stats"], ["check"]):
        done = command(*verb, LIMPET_URL=URLS[name][0])
        assert SECRET not in done.stdout + done.stderr, verb
        done = command(*verb, "--url", URLS[name][0])
        assert SECRET not in done.stdout + done.stderr, verb


@pytest.mark.slow
def test_a_wrong_password(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    seen = use(f"{postgres_url}&password={SECRET}&user=nobody", {})
    assert SECRET not in seen
    assert SECRET not in caplog.text


@pytest.mark.slow
def test_a_closed_store_says_no_secret() -> None:
    for name in ("s3, by name", "s3, no server"):
        url, options = URLS[name]
        store = limpet.open(url, **options)
        store.close()
        with pytest.raises(limpet.LimpetError) as caught:
            store.scope("s").load()
        assert SECRET not in printed(caught.value) + repr(store)


class Odd:
    def __repr__(self) -> str:
        return SECRET

    __str__ = __repr__


def nested(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = [value]
    return value


BAD: dict[str, Callable[[limpet.Scope[Any]], object]] = {
    "not JSON": lambda scope: scope.save({"a": Odd(), "b": SECRET}),
    "a set": lambda scope: scope.save({"a": {SECRET}}),
    "bytes": lambda scope: scope.save({"a": SECRET.encode()}),
    "a surrogate": lambda scope: scope.save({"a": f"{SECRET}\ud800"}),
    "too deep": lambda scope: scope.save(nested(SECRET, 300)),
    "not finite": lambda scope: scope.save([SECRET, float("nan")]),
    "too large": lambda scope: scope.save([SECRET * 7_000_000]),
    "metadata": lambda scope: scope.save({}, metadata={"a": [SECRET, Odd()]}),
    "large metadata": lambda scope: scope.save({}, metadata={"a": SECRET * 10_000}),
    "labels": lambda scope: scope.save({}, labels={"a": SECRET * 100}),
    "status": lambda scope: scope.save({}, status=SECRET * 100),
    "append to text": lambda scope: [scope.save({"a": SECRET}), scope.append("a", [SECRET])],
    "append odd": lambda scope: scope.append("a", [SECRET, Odd()]),
    "append no list": lambda scope: scope.append("a", SECRET),  # type: ignore[arg-type]
    "a note": lambda scope: scope.set_note("n", {"a": SECRET, "b": Odd()}),
    "an update": lambda scope: scope.update(scope.save({"a": SECRET}).id, lambda _: SECRET),  # type: ignore[arg-type,return-value]
    "a conflict": lambda scope: [scope.save({"a": SECRET}), scope.save(SECRET, expect=None)],
    "another body": lambda scope: [scope.save({"a": SECRET}, id="x"), scope.save(SECRET, id="x")],
    "a patch": lambda scope: scope.fork(scope.save(SECRET).id, patch={"a": SECRET}),
}


@pytest.mark.parametrize(
    "url",
    [
        "memory:",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("sqlite:///a.db", "./folder")),
    ],
)
@for_each("name", BAD)
def test_no_error_shows_what_a_state_holds(
    url: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with limpet.open(url) as store, pytest.raises(limpet.LimpetError) as caught:
        BAD[name](store.scope("s"))
    shown = "".join(str(each) + repr(each) for each in causes(caught.value))
    assert SECRET not in shown + repr(vars(caught.value))
    assert SECRET not in caplog.text


def test_a_damaged_state_is_not_shown(tmp_path: Path) -> None:
    with limpet.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
        committed(store, b'{"a":"' + SECRET.encode())
        with pytest.raises(limpet.Corrupt) as caught:
            store.scope("deep").load()
    assert SECRET not in printed(caught.value)
