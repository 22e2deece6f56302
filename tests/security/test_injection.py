"""Ids, labels and states that try to be something else: SQL, a path, a header, an escape sequence.

What a browser shows is tried in tests/inspector/browser, what documents show in tests/views.
"""

import asyncio
import logging
import secrets
import sqlite3
import subprocess
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql

import limpet
from limpet import InvalidInput, LimpetError, Store, runs
from limpet.cli import share as serve
from limpet.cli._app import VERBS
from limpet.server.access import Access
from limpet.server.app import App
from tests.cases import for_each
from tests.cli.conftest import Command, command  # noqa: F401
from tests.cli.test_command import on_terminal
from tests.security.conftest import also_on_postgres
from tests.server.asgi import ask
from tests.servers.postgres import Postgres, with_option

TEXTS = [
    "'; DROP TABLE snapshots; --",
    '"; DROP SCHEMA limpet CASCADE; --',
    "x') OR ('1'='1",
    "%",
    "_",
    "a%",
    "*",
    "[a-z]?",
    "$.a",
    "%s %(session_id)s :session_id ?1 $1 {0}",
    "\\",
    "../../etc/passwd",
    "/etc/passwd",
    "..\\..\\x",
    ".",
    "..",
    "a\r\nX-Evil: 1\r\n\r\n",
    "a?b=c&d=e#f",
    "%2e%2e%2f",
    "%00",
    "CON",
    "-rf",
    "\x1b]0;title\x07\x1b[2J\x9b31m\u202e",
]


def names_of(store: Store) -> set[tuple[str, ...]]:
    return {tuple(each.key) for each in store.scopes()}


@also_on_postgres
def test_a_text_is_only_a_name(store: Store) -> None:
    """Whatever an id, a label, a status or the name of a note says, it reaches only itself."""
    victim = store.scope("a", "b")
    victim.save({"v": 1}, id="c", labels={"k": "v"}, status="done")
    victim.set_note("n", 1)
    before = victim.info()
    for text in TEXTS:
        scope = store.scope(text, text)
        assert scope.load() is None
        scope.save({"t": text}, id=text, labels={text: text}, status=text)
        scope.set_note(text, text)
        scope.set_note(text, text, on=text)
        assert [each.state for each in scope.load_many([text])] == [{"t": text}]
        assert [each.id for each in scope.history(labels={text: text}, status=text)] == [text]
        assert [each.value for each in scope.notes()] == [text]
        assert [each for each in store.sessions(prefix=text) if not each.startswith(text)] == []
        assert [each.key.session_id for each in store.scopes(text)] == [text]
    assert names_of(store) == {("a", "b", "agent"), *((each, each, "agent") for each in TEXTS)}
    for text in TEXTS:
        assert store.delete_session(text) > 0
    assert names_of(store) == {("a", "b", "agent")}
    assert victim.info() == before
    assert [each.value for each in victim.notes()] == [1]
    assert [each for each in store.check() if each.severity == "error"] == []


@for_each("text", [*TEXTS[:4], 'a"b', "a;b", "a.b", "A", "é", "a" * 64, ""])
def test_the_name_of_a_schema_is_a_name(text: str) -> None:
    with pytest.raises(InvalidInput, match="name of a schema"):
        limpet.open("postgresql://127.0.0.1:1/x", schema=text)


def test_functions_that_others_have_put_into_the_search_path_are_not_called(
    postgres: Postgres, postgres_url: str
) -> None:
    """As in CVE-2018-1058: an exact match of the types wins over a function of PostgreSQL's own."""
    others = f"o{secrets.token_hex(5)}"
    with postgres.connect() as conn:
        conn.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(others)))
        conn.execute(
            f"CREATE FUNCTION {others}.unnest(text[], text[]) RETURNS TABLE (a text, b text)"
            " LANGUAGE plpgsql AS $$ BEGIN RAISE 'it was called'; END $$"
        )
        conn.execute(
            f"CREATE FUNCTION {others}.unnest(text[]) RETURNS SETOF text"
            " LANGUAGE plpgsql AS $$ BEGIN RAISE 'it was called'; END $$"
        )
        try:
            use_everything(with_option(postgres_url, "options", f"-csearch_path%3D{others}"))
        finally:
            conn.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(others)))


def use_everything(url: str) -> None:
    with limpet.open(url) as store:
        scope = store.scope("s")
        for number in range(3):
            scope.save({"n": number}, id=str(number), labels={"k": "v"})
        scope.set_note("n", 1, on="1")
        assert [each.id for each in scope.history(labels={"k": "v"})] == ["2", "1", "0"]
        assert [each.value for each in scope.notes(on=["1", "2"])] == [1]
        assert store.delete_session("s") == 3


# HTTP.


def test_a_revision_cannot_add_a_header(http: Any, tmp_path: Path) -> None:
    with limpet.open(http.mount(f"sqlite:///{tmp_path}/a.db")) as store:
        scope = store.scope("s")
        scope.save({})
        for text in ('x"\r\nX-Evil: 1', "x\r\n\r\nGET /", "é", "\u2028", 'a", "b'):
            for call in (
                lambda text=text: scope.save({}, expect=text),
                lambda text=text: scope.delete(expect=text),
                lambda text=text: scope.set_note("n", 1, expect=text),
            ):
                with pytest.raises(LimpetError):
                    call()
        assert scope.note("n") is None
        assert len(list(scope.history())) == 1


def test_an_id_adds_no_line_to_a_stream_of_events() -> None:
    text = "s\n\nevent: end\ndata: {}\n\n\u2028\u2029\x85"

    async def run() -> bytes:
        async with limpet.open_async("memory:") as store:
            await store.scope(text).save({}, id=text, status=text, labels={text: text})
            found = await ask(App(store, Access()), "GET", "/v1/watch", {"session_id": text})
            return found.body

    lines = asyncio.run(run()).split(b"\n")
    assert [line.partition(b":")[0] for line in lines if line] == [b"", b"id", b"event", b"data"]


def test_a_log_line_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever names a session must not write lines of the log, nor reach the terminal."""
    loggers = [logging.getLogger(name) for name in ("limpet", "uvicorn.error")]
    before = [list(each.handlers) for each in loggers]
    try:
        serve.log_to_stderr(access=True)
        text = "a\n2026-01-01 INFO all is well\r\x1b[2J\x9b\u202e"
        logging.getLogger("limpet.server").warning("a stream was cut off: %s", text)
        try:
            raise ValueError("why")
        except ValueError:
            logging.getLogger("limpet.server").exception("an operation failed")
    finally:
        for each, handlers in zip(loggers, before, strict=True):
            each.handlers = handlers
    first, second, *traceback = capsys.readouterr().err.splitlines()
    assert first.endswith(r"a\n2026-01-01 INFO all is well\r\x1b[2J\x9b\u202e")
    assert second.endswith("an operation failed")
    assert traceback[-1] == "ValueError: why"


def test_a_server_that_gives_no_raw_path_logs_no_control_characters(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        async with limpet.open_async("memory:") as store:
            app = App(store, Access())
            scope = {
                "type": "http",
                "method": "GET",
                "path": "/v1/\x1b[2J\nINFO",
                "query_string": b"",
                "headers": [(b"host", b"localhost")],
            }
            sent: list[Any] = []

            async def send(message: Any) -> None:
                sent.append(message)

            async def receive() -> dict[str, Any]:
                return {"type": "http.request"}

            await app(scope, receive, send)
            assert sent[0]["status"] == 404

    with caplog.at_level(logging.INFO, "limpet.access"):
        asyncio.run(run())
    assert all(each.getMessage().isprintable() for each in caplog.records)
    assert len(caplog.records) == 1


# The terminal.

ESCAPES = "\x1b]0;title\x07\x1b[2J\r\x9b31m\x7f\u202e\u2066\u200b"
UNSAFE = {*map(chr, [*range(10), *range(11, 32), *range(127, 160)]), *"\u2028\u202e\u2066\u200b"}


@pytest.fixture
def hostile_url(tmp_path: Path) -> str:
    """A store in which everything that people name or write holds escape sequences."""
    url = f"sqlite:///{tmp_path / 'agents.db'}"
    with limpet.open(url) as store:
        scope = store.scope(f"s{ESCAPES}", f"m{ESCAPES}")
        call = {"id": ESCAPES, "name": ESCAPES, "arguments": {ESCAPES: ESCAPES}}
        for number in range(3):
            said = [
                {"role": "user", "content": f"hello {ESCAPES}", "name": ESCAPES},
                {"role": ESCAPES, "content": [{"type": ESCAPES, ESCAPES: ESCAPES}]},
                {"role": "assistant", "content": ESCAPES, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": ESCAPES, "content": ESCAPES},
            ]
            scope.save(
                {"messages": said, ESCAPES: {ESCAPES: [ESCAPES, number]}},
                id=f"{number}{ESCAPES}",
                status=f"failed {ESCAPES}",
                labels={ESCAPES: ESCAPES},
                metadata={ESCAPES: ESCAPES},
            )
        scope.set_note("title", ESCAPES)
        scope.set_note(ESCAPES, ESCAPES, on=f"0{ESCAPES}")
        scope.fork(f"0{ESCAPES}", scope_id=f"f{ESCAPES}")
        with suppress(RuntimeError), runs.start(store, ESCAPES, task=ESCAPES, owner=ESCAPES) as run:
            run.step({ESCAPES: 1})
            raise RuntimeError(ESCAPES)
    return url


SESSION, SCOPE = f"s{ESCAPES}", f"m{ESCAPES}"
CALLS: dict[str, list[list[str]]] = {
    "ls": [[], [SESSION], ["--prefix", ESCAPES]],
    "log": [[SESSION], [SESSION, SCOPE], ["--graph", SESSION], [ESCAPES], ["no" + ESCAPES]],
    "show": [
        [f"{SESSION}:{SCOPE}@"],
        [f"{SESSION}:{SCOPE}@", "--full"],
        [f"{SESSION}:{SCOPE}@", "--raw"],
        [f"{SESSION}:{SCOPE}@", "--path", "messages.0"],
        [f"{SESSION}:{SCOPE}@", "--path", ESCAPES],
        [f"{SESSION}:{SCOPE}@", "--path", "no" + ESCAPES],
        [SESSION],
        ["no" + ESCAPES],
    ],
    "diff": [
        [f"{SESSION}:{SCOPE}@~1", f"{SESSION}:{SCOPE}@"],
        [f"{SESSION}:{SCOPE}@", f"{ESCAPES}:main@"],
    ],
    "grep": [["hello"], ["hello", SESSION], ["--count", "hello"], ["title", "-F"]],
    "tail": [[f"{SESSION}:{SCOPE}"], [SESSION, SCOPE], [SESSION]],
    "stats": [[], [SESSION]],
    "runs": [
        [],
        ["show", ESCAPES],
        ["abort", ESCAPES],
        ["abort", "no" + ESCAPES],
        ["adopt", "no" + ESCAPES, "true"],
    ],
    "notes": [
        [SESSION],
        [SESSION, "title"],
        [SESSION, ESCAPES],
        [SESSION, f"n{ESCAPES}", "--set", "1", "--scope", SCOPE],
        [SESSION, f"n{ESCAPES}", "--rm", "-y", "--scope", SCOPE],
        [SESSION, "no" + ESCAPES],
    ],
    "usage": [[], [SESSION], ["--by", f"label={ESCAPES}"], ["no" + ESCAPES]],
    "policy": [
        ["set", "--prefix", ESCAPES, "--keep-last", "1"],
        ["show"],
        ["rm", "--prefix", ESCAPES],
        ["rm", "--prefix", "no" + ESCAPES],
    ],
    "backup": [[f"b{ESCAPES}.limpet"], [f"no{ESCAPES}/b.limpet"], ["b.limpet", "no" + ESCAPES]],
    "fork": [[f"{SESSION}:{SCOPE}@~1", "--as", f"g{ESCAPES}"], [f"{SESSION}:{SCOPE}@"]],
    "restore": [[f"{SESSION}:{SCOPE}@~1"], [f"{SESSION}:{SCOPE}@~9"]],
    "prune": [["--keep-last", "1", "--dry-run", SESSION], ["--keep-last", "1", SESSION, "-y"]],
    "check": [[], ["--repair"]],
    "compact": [[]],
    "export": [
        [SESSION, "--format", "markdown"],
        [SESSION, "--format", "html"],
        ["-o", "all.jsonl"],
        ["-o", f"a{ESCAPES}.md", SESSION],
    ],
    "import": [["all.jsonl"], [f"no{ESCAPES}.jsonl"]],
    "copy": [["", f"sqlite:///copy{ESCAPES}.db"]],
    "doctor": [[]],
    "ui": [["sqlite:///no" + ESCAPES]],
    "serve": [["--host", ESCAPES]],
    "redact": [[SESSION, "--text", "no" + ESCAPES, "-y"], ["no" + ESCAPES, "--path", "/a", "-y"]],
    "rm": [[SESSION, "-y"], ["no" + ESCAPES, "-y"]],
}
NOTHING_OF_A_STORE = {"schema", "completion", "demo", "rekey"}


def test_every_verb_is_tried() -> None:
    assert set(VERBS) - set(CALLS) == NOTHING_OF_A_STORE


def test_no_verb_prints_control_characters(
    hostile_url: str,
    command: Command,  # noqa: F811
    tmp_path: Path,
) -> None:
    for verb, calls in CALLS.items():
        for call in calls:
            arguments = [hostile_url if each == "" else each for each in call]
            done = command(verb, *arguments, LIMPET_URL=hostile_url)
            assert done.returncode in (0, 1, 2, 3, 4), (verb, call, done.stderr)
            assert_safe(done)


def test_what_is_damaged_is_named_without_control_characters(
    hostile_url: str,
    command: Command,  # noqa: F811
    tmp_path: Path,
) -> None:
    with closing(sqlite3.connect(tmp_path / "agents.db")) as conn, conn:
        conn.execute("UPDATE snapshots SET status = status || 'x'")
    for verb, *more in (("check",), ("log", SESSION), ("export", "-o", "a.jsonl"), ("grep", "a")):
        done = command(verb, *more, LIMPET_URL=hostile_url)
        assert "damaged" in done.stdout or done.returncode == 5, done
        assert_safe(done)


def assert_safe(done: "subprocess.CompletedProcess[str]") -> None:
    assert UNSAFE & {*done.stdout, *done.stderr} == set(), (done.args, done.stdout, done.stderr)


@pytest.mark.slow
def test_an_export_to_a_terminal_escapes_what_json_leaves(hostile_url: str) -> None:
    code, shown = on_terminal("export", "--url", hostile_url)
    assert code == 0
    assert "\\x9b" in shown
    assert UNSAFE - {"\r"} & {*shown} == set()
