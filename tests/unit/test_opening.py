"""From a URL to an engine: what is understood, what is refused, and what no message shows."""

import asyncio
import contextlib
import gc
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import AsyncStore, InvalidInput, LimpetError, Store, opening
from limpet.core import limits
from limpet.core.options import COMMON, OpenOptions
from limpet.opening import draw, file_of, open_async, scheme_of, store_over
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


# Schemes.


@pytest.mark.parametrize(
    ("url", "scheme"),
    [
        ("mysql://host/db", "mysql"),
        ("sqlite3:///x.db", "sqlite3"),
        ("ftp://host/", "ftp"),
        ("x:", "x"),
        ("", ""),
        (":", ""),
        ("//host/path", ""),
        ("memory", ""),
        ("?workers=1", ""),
    ],
)
def test_an_unknown_scheme_is_refused(url: str, scheme: str) -> None:
    message = refusal(url)
    assert f"scheme=`{scheme}`" in message
    assert "memory:" in message
    assert "sqlite:" in message


@pytest.mark.parametrize("url", [b"memory:", Path("agents.db"), 1, ["memory:"], False])
def test_a_url_is_text(url: Any) -> None:
    assert f"type=`{type(url).__name__}`" in refusal(url)


@pytest.mark.parametrize("url", ["memory:", "MEMORY:", "memory:?", "memory:?workers=3"])
def test_memory_is_opened(url: str) -> None:
    with limpet.open(url) as store:
        assert store.scope("s").save(1).size == 1
        assert store.sync is store
        assert isinstance(store.aio, AsyncStore)


@pytest.mark.parametrize("url", ["memory:///", "memory://", "memory:x", "memory:/x", "memory:#x"])
def test_memory_has_no_path(url: str) -> None:
    assert "without a path" in refusal(url)


def test_every_memory_store_is_its_own() -> None:
    with limpet.open("memory:") as one, limpet.open("memory:") as other:
        one.scope("s").save(1)
        assert other.scope("s").load() is None


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:",
        "sqlite:x.db",
        "sqlite:/x.db",
        "sqlite://",
        "sqlite://x.db",
        "sqlite://host/x.db",
        "sqlite:///",
        "sqlite:///?synchronous=off",
        "sqlite:///:memory:",
        "sqlite:///%3Amemory%3A",
        "sqlite:///:memory:?lock_wait_s=1",
    ],
)
def test_a_sqlite_url_has_three_slashes_and_a_file(url: str) -> None:
    assert "sqlite:///relative.db" in refusal(url)


# Files.


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("agents.db", "agents.db"),
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
        ("[x.db", "[x.db"),
    ],
)
def test_a_relative_path_is_a_file_in_this_folder(path: str, name: str) -> None:
    use(limpet.open(f"sqlite:///{path}?synchronous=off"))
    assert main_file() == name


def test_an_absolute_path_has_four_slashes(folder: Path, tmp_path_factory: Any) -> None:
    elsewhere: Path = tmp_path_factory.mktemp("else") / "agents.db"
    use(limpet.open(f"sqlite:///{elsewhere}"))
    assert elsewhere.exists()
    assert os.listdir() == []


def test_a_folder_may_be_escaped() -> None:
    os.mkdir("sub")
    use(limpet.open("sqlite:///sub%2Fagents.db"))
    assert os.path.exists("sub/agents.db")


def test_a_scheme_may_be_in_capitals() -> None:
    use(limpet.open("SQLite:///agents.db"))
    assert main_file() == "agents.db"


@pytest.mark.parametrize("url", ["sqlite:///a%00b.db", "sqlite:///a\0b.db"])
def test_a_path_with_nul_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput):
        limpet.open(url)
    assert os.listdir() == []


@pytest.mark.parametrize("url", ["sqlite:///%ff.db", "sqlite:///%C3.db", "sqlite:///%ED%A0%80.db"])
def test_escapes_that_are_not_text_are_refused(url: str) -> None:
    """Otherwise `%ff` and `%fe` would both become one file that neither of them names."""
    with pytest.raises(InvalidInput):
        limpet.open(url)
    assert os.listdir() == []


def test_a_folder_that_is_missing_is_refused() -> None:
    with pytest.raises(InvalidInput, match="folder"):
        limpet.open("sqlite:///missing/agents.db")
    assert os.listdir() == []


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


@pytest.mark.parametrize("value", [None, ""])
def test_without_an_environment_it_is_a_file_here(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    if value is not None:
        monkeypatch.setenv("LIMPET_URL", value)
    use(limpet.open())
    assert main_file() == "limpet.db"


def test_a_url_that_is_given_counts_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMPET_URL", "nonsense:")
    with limpet.open("memory:"):
        assert os.listdir() == []
    assert "scheme=`nonsense`" in refusal(None)


def test_options_count_without_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMPET_URL", "memory:")
    with limpet.open(state_bytes_max=3) as store, pytest.raises(InvalidInput, match="max=`3`"):
        store.scope("s").save("long")


# Options.


@pytest.mark.parametrize(
    ("url", "options", "name"),
    [
        ("memory:?nonsense=1", {}, "nonsense"),
        ("memory:?nonsense", {}, "nonsense"),
        ("memory:", {"nonsense": 1}, "nonsense"),
        ("memory:", {"lock_wait_s": 1}, "lock_wait_s"),
        ("memory:?synchronous=full", {}, "synchronous"),
        ("sqlite:///x.db?cache=shared", {}, "cache"),
        ("sqlite:///x.db?Workers=1", {}, "Workers"),
        ("sqlite:///x.db", {"path": "y.db"}, "path"),
        ("sqlite:///x#y.db?nonsense=1", {}, "nonsense"),
    ],
)
def test_an_unknown_option_is_refused(url: str, options: dict[str, Any], name: str) -> None:
    message = refusal(url, **options)
    assert message.startswith("there is no such option")
    assert f"option=`{name}`" in message
    assert ("did you mean" in message) != ("known=`" in message)


def test_type_checkers_know_every_option_and_no_other() -> None:
    engines = (each.options for each in opening._SCHEMES.values())
    assert set(OpenOptions.__annotations__) == set(COMMON).union(*engines)


def test_what_is_nearly_right_is_suggested() -> None:
    assert "did you mean `workers`" in refusal("memory:", worker=1)
    assert "did you mean `lock_wait_s`" in refusal("sqlite:///x.db?lock_wait=1")
    assert "did you mean `sqlite:`" in refusal("sqlite3:///x.db")
    assert "did you mean `postgresql:`" in refusal("postgressql://host/db")
    assert "did you mean" not in refusal("xyz://host/db")


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("workers", "two", "a whole number from 1 on"),
        ("lock_wait_s", -1, "a number of seconds from 0 to 86400"),
        ("synchronous", "on", "one of `full`, `normal`, `off`"),
        ("default", "limpet.jsonable", "a function, given by name"),
    ],
)
def test_a_bad_value_says_what_is_acceptable(name: str, value: Any, accepted: str) -> None:
    assert f"it must be {accepted}" in refusal("sqlite:///x.db", **{name: value})


@pytest.mark.parametrize("path", ["agents.db", "./agents.sqlite", "below/agents.sqlite3"])
def test_a_plain_path_of_a_database_is_a_sqlite_file(path: str, folder: Path) -> None:
    (folder / "below").mkdir()
    with limpet.open(path) as store:
        store.scope("s").save(1)
        assert repr(store) == f"Store({path!r})"
    assert (folder / path).is_file()
    assert scheme_of(path) == "sqlite"
    assert file_of(path) == str(folder / path)


@pytest.mark.parametrize(
    ("url", "shown"),
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


@pytest.mark.parametrize(("name", "value"), BAD_VALUES, ids=lambda each: repr(each)[:20])
def test_a_bad_value_is_refused(name: str, value: Any) -> None:
    expected = rf"the option's value is not acceptable: it must be .*\. option=`{name}`"
    assert re.fullmatch(expected, refusal("sqlite:///x.db", **{name: value}))
    if isinstance(value, str):
        assert re.fullmatch(expected, refusal(f"sqlite:///x.db?{name}={value}"))


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("sqlite:///x.db?workers=1", {"workers": 1}),
        ("sqlite:///x.db?synchronous=full", {"synchronous": "off"}),
        ("sqlite:///x.db?workers=1&workers=2", {}),
        ("sqlite:///x.db?synchronous=full&workers=1&synchronous=off", {}),
    ],
)
def test_an_option_is_given_once(url: str, options: dict[str, Any]) -> None:
    assert "given twice" in refusal(url, **options)


@pytest.mark.parametrize(
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


def test_an_option_counts_in_any_position() -> None:
    text: Any = "3"  # as in a URL
    for store in (
        limpet.open("memory:?state_bytes_max=3"),
        limpet.open("memory:", state_bytes_max=text),
        limpet.open("memory:", state_bytes_max=3),
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


@pytest.mark.parametrize(
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
    monkeypatch.setenv("LIMPET_URL", url)
    with pytest.raises(LimpetError) as caught:
        limpet.open()
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:{SECRET}@127.0.0.1:1/db",
        f"postgresql://u:{SECRET}@127.0.0.1:1/db?sslmode={SECRET}",
        f"postgresql://u@127.0.0.1:1/db?password={SECRET}&schema=s",
        f"postgresql://u@127.0.0.1:1/db?options={SECRET}",
        f"postgresql://u:{SECRET}@[::1]:x/db",
    ],
)
def test_no_message_shows_a_password_of_a_server(url: str) -> None:
    with pytest.raises(LimpetError) as caught:
        limpet.open(url)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("name", ["workers", "lock_wait_s", "synchronous", "password"])
def test_no_message_shows_the_value_of_an_option(name: str) -> None:
    assert SECRET not in refusal("sqlite:///x.db", **{name: SECRET})


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


@pytest.mark.parametrize("make", ["{}/a", "file://{}/a", "file://localhost{}/a", "FILE:{}/a"])
def test_a_folder_is_opened_by_its_path(folder: Path, make: str) -> None:
    url = make.format(folder)
    with limpet.open(url) as store:
        assert os.listdir() == []  # nothing is made before the first write
        use(store)
    assert sorted(os.listdir("a")) == [".limpet", "sessions"]


@pytest.mark.parametrize("url", ["./a", "file:a", "b/../a", "file:./a"])
def test_a_folder_may_be_relative(url: str) -> None:
    use(limpet.open(url))
    assert os.listdir() == ["a"]


@pytest.mark.parametrize("url", ["file:", "file://", "file://host/a", "file://host", "s3:", "s3:x"])
def test_a_place_that_is_none_is_refused(url: str) -> None:
    refusal(url)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("./a", {"root": "sessions"}),
        ("./a", {"root": "elsewhere/"}),
        ("./a", {"sync": "perhaps"}),
        ("s3://bucket", {"access_key_id": "id"}),
        ("s3://bucket", {"parallel": 0}),
        ("s3://bucket?endpoint_url=ftp://host", {}),
        ("s3://bucket/a/../b", {}),
        ("s3:///prefix", {}),
        ("s3://two words/prefix", {}),
        ("s3://KEY:SECRET@bucket", {}),
        ("s3://bucket", {"region": "eu\n"}),
        ("s3://bucket", {"access_key_id": "a\n", "secret_access_key": "b"}),
        ("s3://bucket?endpoint_url=http://host:99999", {}),
        ("s3://bucket?endpoint_url=http://ho st", {}),
        ("s3://bucket?endpoint_url=http://127.0.0.1:1&path_style=0", {}),
    ],
)
def test_a_bad_option_of_a_bucket_is_refused(url: str, options: dict[str, Any]) -> None:
    refusal(url, **options)


def test_a_bucket_is_opened_without_a_request() -> None:
    url = "s3://bucket/prefix?endpoint_url=http://127.0.0.1:1&region=us-east-1"
    keys: dict[str, Any] = {"access_key_id": "id", "secret_access_key": SECRET}
    store = limpet.open(url, timeout_s=1, retry_s=1, **keys)
    with pytest.raises(LimpetError) as caught, store:
        store.scope("s").load()
    assert SECRET not in "".join(traceback.format_exception(caught.value))
