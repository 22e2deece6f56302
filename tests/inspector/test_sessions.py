"""The list of sessions: what it shows, filters, orders, pages, tokens, damage, and attention."""

import asyncio
import html
import re
import sqlite3
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import limpet
from limpet import Store, runs
from limpet.server.access import Access, Tokens
from limpet.server.app import App
from limpet.views import overview
from tests.inspector.kit import TOKEN, Fill, app_of, filled, got
from tests.server.asgi import Response, ask, ask_slowly

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(minute: int) -> datetime:
    return START + timedelta(minutes=minute)


def chat(*said: str) -> dict[str, Any]:
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[n % 2], "content": each} for n, each in enumerate(said)]}


def fill(store: Store) -> None:
    """Save four sessions: `travel` is the newest, `report` a run, `old` has the most snapshots."""
    for minute in range(3):
        store.scope("old").save({"n": minute}, created_at=at(minute), status="completed")
    store.scope("support/1").save(
        chat("Where is my parcel?", "On its way."), created_at=at(10), status="failed"
    )
    store.scope("report", kind="run").save({"pages": []}, created_at=at(20), status="completed")
    travel = store.scope("travel")
    first = travel.save(chat("Lisbon"), created_at=at(29), status="completed")
    travel.save(chat("Lisbon", "In May."), created_at=at(30), status="completed")
    travel.fork(first.id, scope_id="second").save(chat("Porto"), created_at=at(25))
    travel.set_note("title", "Three days in Lisbon")


def served(
    store: Store | Fill,
    *queries: dict[str, str],
    rights: str = "",
    access: Access | None = None,
) -> list[Response]:
    """Return the answers of the page to these queries."""
    opened = store if isinstance(store, Store) else filled(store)
    return [got(opened, "/ui", each, rights=rights, access=access) for each in queries]


def nothing(_: Store) -> None:
    pass


def rows(answer: Response) -> list[str]:
    assert answer.status == 200, answer.body
    return re.findall(r'<tr class="session.*?</tr>', answer.body.decode(), re.DOTALL)


def text_of(markup: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", markup)).split())


def names(answer: Response) -> list[str]:
    links = [re.findall(r'<a class="title" href="([^"]*)"', each)[0] for each in rows(answer)]
    return [parse_qs(urlsplit(html.unescape(each)).query)["session_id"][0] for each in links]


def test_a_session_is_shown_with_what_matters() -> None:
    (answer,) = served(fill, {})
    travel, report, support, old = map(text_of, rows(answer))
    assert "Three days in Lisbon travel assistant In May. 2 scopes completed 4" in travel
    assert "2 branches" in travel
    assert "report pages completed 1" in report
    assert "Where is my parcel? support/1 assistant On its way. failed 1" in support
    assert "old n completed 3" in old
    page = text_of(answer.body.decode())
    assert "4 sessions" in page
    assert "limpet ls --url" in page
    assert "content-security-policy" in answer.headers


def test_filters_and_orders_are_in_the_address() -> None:
    asked: dict[tuple[tuple[str, str], ...], list[str]] = {
        (("sort", "name"),): ["old", "report", "support/1", "travel"],
        (("sort", "snapshots"),): ["travel", "old", "report", "support/1"],
        (("prefix", "s"),): ["support/1"],
        (("status", "completed"),): ["travel", "report", "old"],
        (("status", "completed"), ("sort", "name")): ["old", "report", "travel"],
        (("kind", "run"),): ["report"],
        (("text", "PARCEL"),): ["support/1"],
        (("text", "in may"),): ["travel"],
        (("attention", "true"),): ["support/1"],
        (("kind", "agent"), ("status", "failed"), ("text", "way")): ["support/1"],
    }
    answers = served(fill, *map(dict, asked))
    for query, answer in zip(asked, answers, strict=True):
        assert names(answer) == asked[query], query
    form = answers[3].body.decode()
    assert 'name="status" list="statuses" value="completed"' in form
    assert "3 sessions match" in text_of(form)


def test_empty_fields_of_the_form_are_left_out_of_the_address() -> None:
    query = {
        "text": "",
        "sort": "name",
        "prefix": "",
        "status": "",
        "kind": "",
        "attention": "true",
    }
    (answer,) = served(nothing, query)
    assert (answer.status, answer.headers["location"]) == (303, "/ui?sort=name&attention=true")


def test_what_cannot_be_asked_is_refused() -> None:
    answers = served(fill, {"sort": "colour"}, {"after": "x"}, {"nothing": "1"})
    assert [each.status for each in answers] == [400, 400, 400]


async def test_pages_follow_each_other_without_gaps() -> None:
    async def all_pages(app: App, asked: dict[str, str]) -> list[str]:
        found: list[str] = []
        while True:
            answer = await ask(app, "GET", "/ui", asked)
            found += names(answer)
            following = re.search(r'rel="next" href="([^"]*)"', answer.body.decode())
            if following is None:
                return found
            address = urlsplit(html.unescape(following[1]))
            asked = {name: value for name, (value,) in parse_qs(address.query).items()}

    async with limpet.open_async("memory:") as store:
        for n in range(120):
            # Some at the same time: then the name decides.
            scope = store.scope(f"s-{n:03}")
            await scope.save(chat("hello"), created_at=at(n // 3), status="completed")
        app = app_of(store.sync)
        queries: tuple[dict[str, str], ...] = ({}, {"status": "completed"}, {"text": "hello"})
        for query in queries:
            for sort in ("age", "name", "size", "snapshots"):
                found = await all_pages(app, {"sort": sort, **query})
                assert sorted(found) == [f"s-{n:03}" for n in range(120)], (sort, query)
                if sort == "age":
                    assert found[:4] == ["s-117", "s-118", "s-119", "s-114"], query


def test_a_search_for_a_text_says_how_far_it_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "SEARCHED_MAX", 3)
    first, other = served(fill, {"text": "lisbon"}, {"text": "zebra"})
    assert names(first) == ["travel"]
    for answer in (first, other):
        page = text_of(answer.body.decode())
        assert "Searched 3 sessions. Search further" in page
        assert "No session matches" not in page


def test_a_bound_token_sees_only_its_sessions() -> None:
    queries = [{}, {"sort": "name"}, {"sort": "size"}, {"text": "a"}, {"status": "failed"}]
    for answer in served(fill, *queries, rights="read support/"):
        assert names(answer) == ["support/1"]
        assert "Lisbon" not in answer.body.decode()
        assert "1 session" in text_of(answer.body.decode()) or b"text=a" not in answer.body
    (outside,) = served(fill, {"prefix": "t"}, rights="read support/")
    assert outside.status == 403
    (unknown,) = served(fill, {}, access=Access(Tokens(None, f"{TOKEN} read support/")))
    assert unknown.status == 401


@pytest.mark.parametrize("engine", ["sqlite", "folder"])
def test_a_damaged_head_is_shown_and_needs_attention(engine: str, tmp_path: Path) -> None:
    url = {"sqlite": f"sqlite:///{tmp_path}/a.db", "folder": (tmp_path / "a").as_uri()}[engine]
    with limpet.open(url) as store:
        for name in ("bad", "good"):
            store.scope(name).save(chat("hello"), status="completed")
    if engine == "sqlite":
        with closing(sqlite3.connect(tmp_path / "a.db")) as conn, conn:
            query = "UPDATE snapshots SET status = 'forged' WHERE seq = ?"
            conn.execute(query, conn.execute("SELECT min(seq) FROM snapshots").fetchone())
    else:
        for path in tmp_path.rglob("sessions/bad/**/head"):
            path.write_bytes(b"{")
    with limpet.open(url) as store:
        every, attention = served(store, {}, {"attention": "true"})
    assert sorted(names(every)) == ["bad", "good"]
    assert names(attention) == ["bad"]
    (row,) = rows(attention)
    assert "damaged" in row
    assert "the head is damaged: run limpet check" in row


def test_what_needs_attention_says_why() -> None:
    def fill(store: Store) -> None:
        store.scope("stopped").save({}, status="running")
        store.scope("interrupted").save({}, status="interrupted")
        store.scope("fine").save({}, status="completed")
        store.scope("plain").save({})
        with suppress(ValueError), runs.start(store, "broken") as run:
            run.step({"n": 1})
            raise ValueError("no such <file>")

    async def run() -> tuple[Response, Response]:
        async with limpet.open_async("memory:") as store:
            await store.run(fill)
            app = app_of(store.sync)
            async with runs.start(store, "held") as held:
                await held.step({"n": 1})
                async with store.scope("leased").claim(owner="worker") as lease:
                    await lease.save({}, status="running")
                    every = await ask(app, "GET", "/ui")
                    return every, await ask(app, "GET", "/ui", {"attention": "true"})

    every, attention = asyncio.run(run())
    assert len(names(every)) == 7
    told = dict(zip(names(attention), map(text_of, rows(attention)), strict=True))
    assert told.keys() == {"stopped", "interrupted", "broken"}
    assert "running, but no worker holds it" in told["stopped"]
    assert "interrupted" in told["interrupted"]
    assert "failed: ValueError: no such <file>" in told["broken"]
    assert every.body.count(b'class="session needs"') == 3
    (fine,) = served(nothing, {"attention": "true"})
    assert "Nothing needs attention" in text_of(fine.body.decode())


def test_an_empty_store_says_how_to_begin() -> None:
    (answer,) = served(nothing, {})
    page = text_of(answer.body.decode())
    assert 'limpet.open("memory:").scope("chat-1").save(' in page
    assert "limpet demo" in page
    assert "limpet ui --demo" in page


def test_a_folder_is_sorted_by_name_and_says_so(tmp_path: Path) -> None:
    """Each head is a file of its own there: to sort by age, all of them are read."""
    with limpet.open(tmp_path.as_uri()) as store:
        fill(store)
        by_name, by_age = served(store, {}, {"sort": "age"})
    assert names(by_name) == ["old", "report", "support/1", "travel"]
    assert "Sorted by name" in text_of(by_name.body.decode())
    assert 'aria-pressed="false"' in by_name.body.decode()
    assert names(by_age) == ["travel", "report", "support/1", "old"]


def test_the_first_rows_are_sent_before_the_others_are_read(tmp_path: Path) -> None:
    """What is deleted when the first row has come is not in the page any more."""

    async def run() -> tuple[bytes, ...]:
        async with limpet.open_async(tmp_path.as_uri(), sync=False) as store:
            for n in range(200):
                status = "wanted" if n % 199 == 0 else "other"
                await store.scope(f"s-{n:03}").save(chat("hello"), status=status)

            async def on_part(part: bytes) -> None:
                if b"s-000" in part:
                    await store.delete_session("s-199")

            app = app_of(store.sync)
            wanted = {"status": "wanted"}
            found = await ask_slowly(app, "GET", "/ui", wanted, None, {}, on_part=on_part)
            return found.parts

    frame, *rest = asyncio.run(run())
    assert b"<h1>Sessions</h1>" in frame
    assert b"s-000" not in frame
    assert b"s-000" in rest[0]
    assert b"s-199" not in b"".join(rest)
    assert rest[-1].rstrip().endswith(b"</html>")


def test_a_page_that_is_cut_off_says_so(tmp_path: Path) -> None:
    async def run() -> bytes:
        async with limpet.open_async(tmp_path.as_uri()) as store:
            for n in range(12):
                await store.scope(f"s-{n:02}").save(chat("hello"))

            async def on_part(part: bytes) -> None:
                if b"s-00" in part:
                    await store.close()

            app = app_of(store.sync)
            return (await ask_slowly(app, "GET", "/ui", {}, None, {}, on_part=on_part)).body

    page = asyncio.run(run()).decode()
    assert "The list ends here, because of an error" in page
    assert page.rstrip().endswith("</html>")
