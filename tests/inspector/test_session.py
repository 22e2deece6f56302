"""The page of a session: its rows, in chunks, and whose they are."""

import re
import sqlite3
from contextlib import closing, suppress
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import limpet
from limpet import runs
from limpet.inspector.pages.session import CHUNK
from limpet.views import timeline
from limpet.views.runs import read_run
from tests.cli.test_grep import spoil_scopes
from tests.inspector.kit import Fill, filled, got


class Found(HTMLParser):
    """What a page has: its tags, and the rows of the graph."""

    def __init__(self, html: bytes) -> None:
        super().__init__()
        self.html = html.decode()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(self.html)
        self.text = unescape(re.sub(r"<[^>]*>", "", self.html))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    @property
    def rows(self) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.tags if "data-row" in attributes]

    @property
    def ids(self) -> list[str]:
        return [parse_qs(urlsplit(row["href"] or "").query)["id"][0] for row in self.rows]

    @property
    def chunk(self) -> dict[str, str | None]:
        return next(each for _, each in self.tags if each.get("class") == "chunk")


def shown(
    store: limpet.Store | Fill,
    query: dict[str, Any],
    path: str = "/ui/session",
    *,
    status: int = 200,
    rights: str = "",
) -> Found:
    opened = store if isinstance(store, limpet.Store) else filled(store)
    response = got(opened, path, query, rights=rights)
    assert response.status == status, response.body
    return Found(response.body)


def grown(scope: limpet.Scope, count: int, **given: Any) -> list[limpet.SnapshotInfo]:
    said = [{"role": "user", "content": f"hello {n}"} for n in range(count)]
    return [
        scope.save({"messages": said[: n + 1]}, id=f"{scope.scope_id}-{n}", **given)
        for n in range(count)
    ]


def branched(store: limpet.Store) -> None:
    """Two lines and a draft: the side was forked from the middle of the main one."""
    main = store.scope("s")
    main.set_note("title", "A trip to Lisbon")
    grown(main, 3)
    side = main.fork("main-1", scope_id="side")
    side.save({"n": 1}, id="side-1", status="failed", labels={"run": "r-7"})
    main.save({"n": 2}, id="draft", keep=False)


def test_a_fork_a_draft_and_heads() -> None:
    found = shown(branched, {"session_id": "s", "scope_id": "side"})
    assert found.ids[0] == "draft"
    assert found.ids.index("side-1") < found.ids.index("main-1")
    rows = dict(zip(found.ids, found.rows, strict=True))
    first = next(id for id in found.ids if id.startswith("01"))  # of the fork
    numbers = {id: row["data-row"] for id, row in rows.items()}
    assert rows["draft"]["data-parent"] == numbers["main-2"]
    assert rows[first]["data-parent"] == numbers["main-1"]
    assert rows["main-1"]["data-child"] == numbers["main-2"]
    assert rows["main-0"]["data-child"] == numbers["main-1"]
    assert "data-parent" not in rows["main-0"]
    assert found.html.count('class="ring"') == 2
    assert found.html.count('class="n draft"') == 1
    assert re.findall(r'<b class="ref l\d"[^>]*>([^<]*)</b>', found.html) == [
        "main · draft",
        "side",
    ]
    assert [id for id, row in rows.items() if "aria-current" in row] == ["side-1"]
    for text in ("A trip to Lisbon", "failed", "run=r-7", "forked from main@main-1", "2 scopes"):
        assert text in found.text
    assert "limpet log --graph s --url" in found.text


def test_entries_of_pydantic_ai_are_not_shown_as_labels() -> None:
    def fill(store: limpet.Store) -> None:
        labels = {"019ab3f0-8f53": "entry", "run": "r-7"}
        scope = store.scope("s", kind="conversation")
        scope.append("messages", [], labels=labels)

    found = shown(fill, {"session_id": "s", "view": "chat"})
    assert found.text.count("run=r-7") == 2  # in the list, and above the snapshot
    assert "019ab3f0-8f53" not in found.text


def test_what_is_not_there() -> None:
    for query, status in [
        ({"session_id": "none"}, 404),
        ({"session_id": "s", "id": "none"}, 404),
        ({"session_id": "s", "scope_id": "none"}, 404),
        ({"session_id": "s", "view": "none"}, 400),
        ({"session_id": "s", "at": "-1"}, 400),
        ({}, 400),
    ]:
        found = shown(branched, query, status=status)
        assert found.html.startswith("<!doctype html>"), (query, status)


def many(store: limpet.Store) -> None:
    """Three chunks, with forks across their bounds."""
    main = store.scope("s")
    for n in range(2 * CHUNK + 20):
        main.save({"n": n}, id=f"{n}", parent=None if n == 0 else str(max(0, n - 1 - n % 7 // 6)))
    main.fork("5", scope_id="early")


def without_ages(row: str) -> str:
    """Return a row without "now" or "2 s ago", which change between two requests."""
    return re.sub(r"[^>]*</time>", "</time>", row)


def test_chunks_are_the_whole() -> None:
    store = filled(many)
    whole = shown(store, {"session_id": "s"})
    version, total = whole.chunk["data-version"], int(whole.chunk["data-total"] or 0)
    rows: list[str] = []
    for at in range(0, total, CHUNK):
        part = shown(store, {"session_id": "s", "at": at, "version": version}, "/ui/rows")
        assert part.chunk["data-version"] == version
        rows += re.findall(r"<li.*?</li>", part.html, re.S)
    assert len(rows) == total == 2 * CHUNK + 21
    # The first page has the same rows, as far as it goes.
    first = re.findall(r'<li class="row.*?</li>', whole.html, re.S)
    first[0] = first[0].replace(' aria-current="true"', "")
    assert list(map(without_ages, first)) == list(map(without_ages, rows[: 2 * CHUNK]))
    # A snapshot far down is on the page that names it, and so are links to the rest.
    deep = shown(store, {"session_id": "s", "id": "0"})
    assert deep.ids[-1] == "0"
    assert "aria-current" in deep.rows[-1]
    assert ">Newer</a>" in deep.html
    assert ">Older</a>" in whole.html


def test_a_version_does_not_change_while_it_is_read() -> None:
    store = filled(many)
    before = shown(store, {"session_id": "s"}, "/ui/rows")
    store.scope("s").save({"n": "new"}, id="new")
    version = before.chunk["data-version"]
    kept = shown(store, {"session_id": "s", "version": version}, "/ui/rows")
    assert kept.ids == before.ids
    after = shown(store, {"session_id": "s"}, "/ui/rows")
    assert after.ids[0] == "new"
    assert after.chunk["data-version"] != version
    # One that is not kept any more is answered with what there is now.
    found = shown(store, {"session_id": "s", "version": "gone"}, "/ui/rows")
    assert found.chunk["data-version"] == after.chunk["data-version"]


def test_what_was_said_is_read_for_the_rows_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(lambda store: grown(store.scope("s"), 5))
    found = shown(store, {"session_id": "s", "at": 1, "rows": 3}, "/ui/said")
    assert re.findall(r"hello \d", found.text) == ["hello 3", "hello 2", "hello 1"]
    # Rows that were read show it at once; states that are too large end the answer.
    page = shown(store, {"session_id": "s"}, "/ui/rows")
    assert re.findall(r"hello \d|Snapshot \d", page.text) == [
        *("Snapshot 5", "hello 3", "hello 2", "hello 1", "Snapshot 1")
    ]
    monkeypatch.setattr(timeline, "_STATES_BYTES_MAX", 100)
    query = {"session_id": "s", "rows": 5}
    found = shown(lambda store: grown(store.scope("s"), 5), query, "/ui/said")
    assert re.findall(r"hello \d", found.text) == ["hello 4"]


def test_a_long_history_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    read = timeline.read_timeline
    monkeypatch.setattr(
        "limpet.inspector.pages.session.read_timeline", lambda *given: read(*given, limit=3)
    )
    found = shown(lambda store: grown(store.scope("s"), 5), {"session_id": "s"})
    assert found.ids == ["main-4", "main-3", "main-2"]
    assert "These are the newest" in found.text
    assert "3+" in found.text
    assert "follows main-1" in found.text


def test_thousands_of_snapshots_are_a_small_page() -> None:
    def fill(store: limpet.Store) -> None:
        main = store.scope("s")
        for n in range(3_000):
            parent = None if n == 0 else str(n - 1 if n % 100 else n // 2)
            main.save(n, id=str(n), parent=parent)

    store = filled(fill)
    page = shown(store, {"session_id": "s"})
    assert len(page.html) < 300_000
    assert len(page.rows) == 2 * CHUNK
    assert page.chunk["data-total"] == "3000"
    query = {"session_id": "s", "at": 1_500, "version": page.chunk["data-version"]}
    chunk = shown(store, query, "/ui/rows")
    assert len(chunk.html) < 150_000
    assert chunk.rows[0]["data-row"] == "1500"


def test_histories_without_parents_are_one_dotted_line() -> None:
    def fill(store: limpet.Store) -> None:
        for n in range(4):
            store.scope("s").save({"n": n}, id=str(n), parent=None)

    found = shown(fill, {"session_id": "s"})
    assert found.ids == ["3", "2", "1", "0"]
    lines = re.findall("<line [^>]*>", found.html)
    assert len([line for line in lines if "stroke-dasharray" in line]) == 6
    assert "follows" not in found.text
    assert "A dotted line" in found.text
    assert "A dotted line" not in shown(branched, {"session_id": "s"}).text


def test_a_session_of_notes_alone_has_a_page() -> None:
    found = shown(lambda store: store.scope("s").set_note("title", "x"), {"session_id": "s"})
    assert found.rows == []
    assert "No snapshot yet" in found.text


def test_a_session_of_damaged_scopes_alone_has_a_page(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    with limpet.open(url) as store:
        store.scope("s").save("a fox")
        store.scope("s").set_note("title", "x")
    spoil_scopes(tmp_path, "s")
    with limpet.open(url) as store:
        assert "A part of the scope main is damaged" in shown(store, {"session_id": "s"}).text


def test_a_scope_of_notes_alone_is_shown_without_those_of_others() -> None:
    def fill(store: limpet.Store) -> None:
        for name in ("a", "b"):
            for number in range(60):
                store.scope("s", name).set_note(f"{name}{number:02}", "x")

    alone = shown(fill, {"session_id": "s", "scope_id": "b"})
    assert "b00" in alone.text
    assert "a00" not in alone.text
    both = shown(fill, {"session_id": "s"})
    assert both.html.count('id="notes"') == 1
    assert ("a49" in both.text, "a50" in both.text) == (True, False)


def test_damage_is_named_and_hides_nothing_else(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/agents.db"
    with limpet.open(url) as store:
        grown(store.scope("s"), 3)
        grown(store.scope("s", "side"), 3)
    with closing(sqlite3.connect(tmp_path / "agents.db")) as conn, conn:
        conn.execute("UPDATE snapshots SET status = 'forged' WHERE id = 'main-2'")
    with limpet.open(url) as store:
        found = shown(store, {"session_id": "s"})
        assert sorted(found.ids) == ["main-0", "main-1", "side-0", "side-1", "side-2"]
        assert "A part of the scope main is damaged: run limpet check" in found.text
        found = shown(store, {"session_id": "s", "scope_id": "main"})
        assert "This snapshot is damaged" in found.text


def test_a_bound_token_sees_no_origin_outside() -> None:
    def fill(store: limpet.Store) -> None:
        origin = store.scope("b/SECRET").save({"n": 1}, id="SECRET-id")
        store.scope("b/SECRET").fork(origin, to="a/1")

    for path in ("/ui/session", "/ui/rows"):
        found = shown(fill, {"session_id": "a/1"}, path, rights="read a/")
        assert len(found.rows) == 1
        assert "SECRET" not in found.html
        assert "SECRET" in shown(fill, {"session_id": "a/1"}, path).html
    for path in ("/ui/session", "/ui/rows", "/ui/said"):
        shown(fill, {"session_id": "b/SECRET"}, path, status=403, rights="read a/")


def test_a_deleted_session_is_not_shown_from_memory() -> None:
    with limpet.open("memory:") as store:
        store.scope("s").save({"messages": [{"role": "user", "content": "private"}]})
        found = got(store, "/ui/said", {"session_id": "s"})
        version = re.findall(r'data-version="(\w+)"', found.body.decode())[0]
        store.delete_session("s")
        for path in ("/ui/rows", "/ui/said"):
            assert got(store, path, {"session_id": "s", "version": version}).status == 404


def test_a_run_says_why_it_failed() -> None:
    """The same as `limpet runs show`, and nothing of the error is markup or cut."""
    message = "<b>no</b> paper " * 30
    with limpet.open("memory:") as store:
        with suppress(ValueError), runs.start(store, "r", task="t", traceback=True) as run:
            run.step({"n": 1})
            raise ValueError(message)
        panel = read_run(store, "r")
        page = shown(store, {"session_id": "r"})
    assert panel is not None
    assert "\n".join(panel.error) in page.text
    assert any("raise ValueError(message)" in line for line in panel.error)
    for name, text in panel.facts.items():
        assert name.capitalize() in page.text
        assert text in page.text
    for table in panel.tables:
        assert all(cell in page.text for row in table.rows for cell in row)
    assert "run-title" not in shown(branched, {"session_id": "s"}).html
