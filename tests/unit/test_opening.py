"""From a URL to an engine: what is understood, what is refused, and what no message shows."""

import asyncio
import contextlib
import gc
import os
import re
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import InvalidInput, LimpetError, Store, opening
from limpet.core import limits
from limpet.core.options import COMMON, OpenOptions
from limpet.opening import draw, file_of, open_async, scheme_of, store_over
from tests.cases import for_each
from tests.memory import Memory

SECRET = "".join(("s3", "cr", "et"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test in a folder of its own, and without a URL in the environment."""
    monkeypatch.delenv("LIMPET_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(url: Any, **options: Any) -> str:
    """Return how a URL is refused, which both APIs do alike and without leaving a file."""
    with pytest.raises(InvalidInput) as caught:
        limpet.open(url, **options)
    with pytest.raises(InvalidInput) as caught_async:
        open_async(url, **options)
    assert str(caught.value) == str(caught_async.value)
    assert os.listdir() == []
    return str(caught.value)


def main_file() -> str:
    """Return the one database file that was made in this folder."""
    (name,) = (name for name in os.listdir() if not name.endswith(("-wal", "-shm")))
    return name


def use(store: Store) -> None:
    with store:
        store.scope("s").save({"a": 1})


# What is refused: a URL, options, and what the message says.

THREE_SLASHES = "sqlite:///relative.db"
REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    *((url, {}, f"type=`{type(url).__name__}`") for url in (b"memory:", Path("a.db"), 1, False)),
    ("mysql://host/db", {}, "scheme=`mysql`"),
    ("sqlite3:///x.db", {}, "did you mean `sqlite:`"),
    ("postgressql://host/db", {}, "did you mean `postgresql:`"),
    ("xyz://host/db", {}, "not known. scheme=`xyz`"),
    *((url, {}, "scheme=``") for url in ("", ":", "//host/path", "memory", "?workers=1")),
    *((f"memory:{path}", {}, "without a path") for path in ("///", "//", "x", "/x", "#x")),
    *((f"sqlite:{path}", {}, THREE_SLASHES) for path in ("", "x.db", "/x.db", "//", "//host/x")),
    ("sqlite:///", {}, THREE_SLASHES),
    ("sqlite:///?synchronous=off", {}, THREE_SLASHES),
    ("sqlite:///:memory:?lock_wait_s=1", {}, THREE_SLASHES),
    ("sqlite:///%3Amemory%3A", {}, THREE_SLASHES),
    ("sqlite:///a%00b.db", {}, "NUL"),
    ("sqlite:///a\0b.db", {}, "NUL"),
    # Otherwise `%ff` and `%fe` would both become one file that neither of them names.
    *((f"sqlite:///{name}.db", {}, "not UTF-8") for name in ("%ff", "%C3", "%ED%A0%80")),
    *((url, {}, "write file:///") for url in ("file:", "file://", "file://host/a", "file://host")),
    ("s3:", {}, "write s3://bucket"),
    ("s3:x", {}, "write s3://bucket"),
    ("memory:?nonsense=1", {}, "option=`nonsense`"),
    ("memory:?nonsense", {}, "option=`nonsense`"),
    ("memory:", {"nonsense": 1}, "known=`"),
    ("memory:", {"lock_wait_s": 1}, "option=`lock_wait_s`"),
    ("memory:", {"worker": 1}, "did you mean `workers`"),
    ("sqlite:///x.db?lock_wait=1", {}, "did you mean `lock_wait_s`"),
    ("sqlite:///x.db?Workers=1", {}, "option=`Workers`"),
    ("sqlite:///x.db", {"path": "y.db"}, "option=`path`"),
    ("sqlite:///x#y.db?nonsense=1", {}, "option=`nonsense`"),
    ("sqlite:///x.db", {"workers": "two"}, "it must be a whole number from 1 on"),
    ("sqlite:///x.db", {"lock_wait_s": -1}, "it must be a number of seconds from 0 to 86400"),
    ("sqlite:///x.db", {"synchronous": "on"}, "it must be one of `full`, `normal`, `off`"),
    ("sqlite:///x.db", {"default": "limpet.jsonable"}, "it must be a function, given by name"),
    ("sqlite:///x.db?workers=1", {"workers": 1}, "given twice"),
    ("sqlite:///x.db?synchronous=full", {"synchronous": "off"}, "given twice"),
    ("sqlite:///x.db?synchronous=full&workers=1&synchronous=off", {}, "given twice"),
    ("./a", {"root": "sessions"}, "option=`root`"),
    ("./a", {"sync": "perhaps"}, "option=`sync`"),
    ("s3://bucket", {"access_key_id": "id"}, ""),
    ("s3://bucket", {"parallel": 0}, "option=`parallel`"),
    ("s3://bucket?endpoint_url=ftp://host", {}, ""),
    ("s3://bucket/a/../b", {}, ""),
    ("s3:///prefix", {}, ""),
    ("s3://two words/prefix", {}, ""),
    ("s3://KEY:SECRET@bucket", {}, "a URL holds no keys"),
    ("s3://bucket", {"region": "eu\n"}, ""),
    ("s3://bucket", {"access_key_id": "a\n", "secret_access_key": "b"}, ""),
    ("s3://bucket?endpoint_url=http://host:99999", {}, ""),
    ("s3://bucket?endpoint_url=http://ho st", {}, ""),
    ("s3://bucket?endpoint_url=http://127.0.0.1:1&path_style=0", {}, ""),
]


@for_each("url, options, message", REFUSED)
def test_what_is_refused_is_explained(url: Any, options: dict[str, Any], message: str) -> None:
    said = refusal(url, **options)
    assert message in said
    if "no such option" in said:
        assert ("did you mean" in said) != ("known=`" in said)


# Files.


@for_each(
    "path, name",
    [
        ("./agents.db", "agents.db"),
        ("a%20b.db", "a b.db"),
        ("a b.db", "a b.db"),
        ("100%25.db", "100%.db"),
        ("100%.db", "100%.db"),
        ("what%3F.db", "what?.db"),
        ("what%3fworkers=0", "what?workers=0"),
        ("a%23b.db", "a#b.db"),
        ("a#b.db", "a#b.db"),
        ("a;b&c=d.db", "a;b&c=d.db"),
        ("a+b.db", "a+b.db"),
        ("a:b@c.db", "a:b@c.db"),
        ("%C3%A9%F0%9F%98%80.db", "é😀.db"),
        ("é😀.db", "é😀.db"),
        ("file:x.db", "file:x.db"),
        (":memory:x", ":memory:x"),
        ("sub%2F..%2Fa.db", "a.db"),
        ("[x.db", "[x.db"),
    ],
)
def test_a_relative_path_is_a_file_in_this_folder(path: str, name: str) -> None:
    os.chdir(tempfile.mkdtemp())
    use(limpet.open(f"SQLite:///{path}?synchronous=off"))
    assert main_file() == name


def test_open_async_opens_by_first_use() -> None:
    async def work() -> None:
        store = open_async("sqlite:///agents.db")
        assert os.listdir() == []
        async with store:
            assert main_file() == "agents.db"
            await store.scope("s").save(1)

    asyncio.run(work())


# No URL.


def test_without_a_url_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMPET_URL", "sqlite:///from-env.db?workers=2")
    use(limpet.open())
    assert main_file() == "from-env.db"


def test_without_an_environment_it_is_a_file_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in ("not set", "empty"):
        use(limpet.open())
        assert main_file() == "limpet.db"
        monkeypatch.setenv("LIMPET_URL", "")


def test_a_url_that_is_given_counts_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMPET_URL", "nonsense:")
    with limpet.open("memory:"):
        assert os.listdir() == []
    assert "scheme=`nonsense`" in refusal(None)


# Options.


def test_type_checkers_know_every_option_and_no_other() -> None:
    engines = (each.options for each in opening._SCHEMES.values())
    assert set(OpenOptions.__annotations__) == set(COMMON).union(*engines)


@for_each("path", ["agents.db", "./agents.sqlite", "below/agents.sqlite3"])
def test_a_plain_path_of_a_database_is_a_sqlite_file(path: str, folder: Path) -> None:
    (folder / "below").mkdir(exist_ok=True)
    with limpet.open(path) as store:
        store.scope("s").save(1)
        assert repr(store) == f"Store({path!r})"
    assert (folder / path).is_file()
    assert scheme_of(path) == "sqlite"
    assert file_of(path) == str(folder / path)


@for_each(
    "url, shown",
    [
        ("postgresql://me:pass/w@rd@host:1/db", "postgresql://me:***@host:1/db"),
        (
            "postgresql://me@host/db?password=x&port=1",
            "postgresql://me@host/db?password=***&port=1",
        ),
        (
            "s3://b/p?access_key_id=x&secret_access_key=x&region=r",
            "s3://b/p?access_key_id=***&secret_access_key=***&region=r",
        ),
        ("s3://b/p?session_token=x", "s3://b/p?session_token=***"),
        ("s3://b/p?endpoint_url=http://u:x@h/", "s3://b/p?endpoint_url=http://u:***@h/"),
        ("memory:", "memory:"),
    ],
)
def test_a_store_shows_its_url_without_secrets(url: str, shown: str) -> None:
    store = limpet.open_async(url)  # sends nothing yet
    assert repr(store) == f"AsyncStore({shown!r})"
    assert repr(store.sync) == f"Store({shown!r})"
    store.sync.close()


def test_a_store_that_is_never_closed_is_warned_of() -> None:
    scopes = [limpet.open("sqlite:///x.db").scope("s")]
    gc.collect()
    scopes[0].save(1)  # a scope keeps its store open
    with pytest.warns(ResourceWarning, match="never closed.*url=`sqlite:///x.db`"):
        scopes.clear()
    limpet.open("sqlite:///x.db").close()
    limpet.open("memory:")
    limpet.open_async("sqlite:///x.db")  # was never opened
    gc.collect()


def test_the_end_of_the_interpreter_warns_of_nothing(folder: Path) -> None:
    program = "import limpet; store = limpet.open('x.db'); store.scope('s').save(1)"
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, check=True
    )
    assert ran.stderr == b""


def test_an_async_store_has_aclose() -> None:
    async def main() -> None:
        async with contextlib.aclosing(limpet.open_async("sqlite:///x.db")) as store:
            await store.scope("s").save(1)
        with pytest.raises(InvalidInput, match="closed"):
            await store.scope("s").load()

    asyncio.run(main())


COUNTS = (0, -1, 1.5, 2.0, True, None, "", "x", "1.5", "-1", "0", [1], float("inf"), float("nan"))
SECONDS = (-1, "-1", "", "x", None, [1], "nan", "inf", float("nan"), float("inf"), 10**400)
DURABILITIES = ("", "FULL", "extra", "1", 0, None, True, ["full"], {"full": 1})
BAD_VALUES: list[tuple[str, Any]] = [
    *(("workers", value) for value in COUNTS),
    *(("state_bytes_max", value) for value in COUNTS),
    *(("lock_wait_s", value) for value in SECONDS),
    *(("synchronous", value) for value in DURABILITIES),
]


@for_each("name, value", BAD_VALUES)
def test_a_bad_value_is_refused(name: str, value: Any) -> None:
    expected = rf"the option's value is not acceptable: it must be .*\. option=`{name}`"
    assert re.fullmatch(expected, refusal("sqlite:///x.db", **{name: value}))
    if isinstance(value, str):
        assert re.fullmatch(expected, refusal(f"sqlite:///x.db?{name}={value}"))


@for_each(
    "query",
    [
        "workers=3",
        "state_bytes_max=100",
        "lock_wait_s=0",
        "lock_wait_s=1.5",
        "synchronous=normal",
        "synchronous=off&lock_wait_s=2&workers=1&state_bytes_max=%31%30%30",
    ],
)
def test_options_stand_in_the_query_or_are_given_by_name(query: str) -> None:
    use(limpet.open(f"sqlite:///one.db?{query}"))
    pairs = (pair.split("=") for pair in query.replace("%31%30%30", "100").split("&"))
    options: dict[str, Any] = dict(pairs)
    use(limpet.open("sqlite:///two.db", **options))


def test_an_option_counts() -> None:
    text: Any = "3"  # as in a URL
    for store in (
        limpet.open("memory:?state_bytes_max=3"),
        limpet.open("memory:", state_bytes_max=text),
        store_over(Memory(), state_bytes_max=3),
    ):
        with store, pytest.raises(InvalidInput, match="max=`3`"):
            store.scope("s").save("long")


def test_a_store_over_an_engine_of_your_own() -> None:
    backend = Memory()
    use(store_over(backend))
    with pytest.raises(InvalidInput, match="option=`lock_wait_s`"):
        store_over(Memory(), lock_wait_s=1)
    with store_over(Memory()) as store:
        assert store.driver.tools.state_bytes_max == limits.STATE_BYTES_MAX


# Secrets.


@for_each(
    "url",
    [
        f"postgresql://u:{SECRET}@[h/db",
        f"sqlite://u:{SECRET}@h/db",
        f"sqlite:///x.db?workers={SECRET}",
        f"sqlite:///x.db?synchronous={SECRET}&lock_wait_s={SECRET}",
        f"memory://u:{SECRET}@h",
        f"//u:{SECRET}@h/db",
        f"u:{SECRET}@h/db",
        f":{SECRET}",
    ],
)
def test_no_message_shows_a_password(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert SECRET not in refusal(url)
    assert SECRET not in refusal("sqlite:///x.db", password=SECRET, synchronous=SECRET)
    monkeypatch.setenv("LIMPET_URL", url)
    with pytest.raises(LimpetError) as caught:
        limpet.open()
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@for_each(
    "url",
    [
        f"postgresql://u:{SECRET}@127.0.0.1:1/db",
        f"postgresql://u:{SECRET}@127.0.0.1:1/db?sslmode={SECRET}",
        f"postgresql://u@127.0.0.1:1/db?password={SECRET}&schema=s",
        f"postgresql://u@127.0.0.1:1/db?options={SECRET}",
        f"postgresql://u:{SECRET}@[::1]:x/db",
        "s3://bucket/p?endpoint_url=http://127.0.0.1:1&region=x&retry_s=0&timeout_s=1"
        f"&access_key_id=id&secret_access_key={SECRET}",
    ],
)
def test_no_message_shows_a_password_of_a_server(url: str) -> None:
    with pytest.raises(LimpetError) as caught, limpet.open(url) as store:
        store.scope("s").load()
    assert SECRET not in "".join(traceback.format_exception(caught.value))


# Time and chance.


def test_every_write_draws_its_own_chance() -> None:
    stamps = [draw() for _ in range(1_000)]
    assert len({stamp.nonce for stamp in stamps}) == 1_000
    assert len({stamp.bits for stamp in stamps}) == 1_000
    assert all(len(stamp.nonce) == 16 and int(stamp.nonce, 16) >= 0 for stamp in stamps)
    assert all(0 <= stamp.bits < 2**80 for stamp in stamps)
    assert 1.6e15 < stamps[0].now < 4e15


def test_the_file_of_a_url(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told without opening anything, and refused as opening it would be."""
    assert file_of("sqlite:///a%20b.db?lock_wait_s=5") == str(folder / "a b.db")
    assert file_of("memory:") is None
    assert file_of() == str(folder / "limpet.db")
    monkeypatch.setenv("LIMPET_URL", "sqlite:////elsewhere/x.db")
    assert file_of() == "/elsewhere/x.db"
    for url in ("nothing://x", "sqlite:x.db"):
        with pytest.raises(InvalidInput):
            file_of(url)
    assert os.listdir() == []


# Folders and buckets.


@for_each("make", ["{}/a", "file://{}/b", "file://localhost{}/c", "FILE:{}/d"])
def test_a_folder_is_opened_by_its_path(folder: Path, make: str) -> None:
    with limpet.open(make.format(folder)) as store:
        assert not os.path.exists(make[-1])  # nothing is made before the first write
        use(store)
    assert sorted(os.listdir(make[-1])) == [".limpet", "sessions"]


@for_each("url", ["./a", "file:a", "b/../a", "file:./a"])
def test_a_folder_may_be_relative(url: str) -> None:
    use(limpet.open(url))
    assert os.listdir() == ["a"]
