"""What a store holds, at a glance: orders, counts, forks, drafts and damage."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import InvalidInput, SnapshotRef, Store
from limpet.views import overview
from limpet.views.overview import Counts, ScopeOverview, SessionFilter, SessionOverview

START = datetime(2024, 1, 1, tzinfo=UTC)
SORTS: tuple[overview.Sort, ...] = ("age", "name", "size", "snapshots")


@pytest.fixture(params=["memory", "sqlite", "folder"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty store on engines that count in different ways."""
    return {
        "memory": "memory:",
        "sqlite": f"sqlite:///{tmp_path / 'agents.db'}",
        "folder": (tmp_path / "agents").as_uri(),
    }[str(request.param)]


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with limpet.open(url) as store:
        yield store


def at(minute: int) -> datetime:
    return START + timedelta(minutes=minute)


def fill(store: Store) -> None:
    """Save a, b and c: c is the newest, a has the most snapshots, and b the most bytes."""
    for minute in range(3):
        store.scope("a").save({"n": minute}, created_at=at(minute))
    store.scope("b").save({"text": "x".join(map(str, range(2000)))}, created_at=at(5))
    for minute in (8, 9):
        store.scope("c", "planner").save([minute], created_at=at(minute), status="running")
    store.scope("c", kind="graph").save({}, created_at=at(7))


def names(found: overview.Sessions) -> list[str]:
    return [each.session_id for each in found.read()]


def only(store: Store, session_id: str) -> SessionOverview:
    found = overview.sessions(store, prefix=session_id, counts=True)
    return next(each for each in found.read() if each.session_id == session_id)


def scope_of(store: Store, session_id: str, scope_id: str = "main") -> ScopeOverview:
    return next(
        each
        for each in overview.scopes(store, session_id, counts=True)
        if each.key.scope_id == scope_id
    )


def counts(found: SessionOverview | ScopeOverview) -> Counts:
    assert found.counts is not None
    return found.counts


def test_sessions_come_in_the_order_asked(store: Store) -> None:
    fill(store)
    assert names(overview.sessions(store)) == ["c", "b", "a"]
    assert names(overview.sessions(store, sort="name")) == ["a", "b", "c"]
    assert names(overview.sessions(store, sort="size"))[0] == "b"
    assert names(overview.sessions(store, sort="snapshots")) == ["a", "c", "b"]
    with pytest.raises(InvalidInput, match="unknown sort order"):
        overview.sessions(store, sort="colour")  # type: ignore[arg-type]


def test_a_limit_gives_the_first_of_all_and_the_total() -> None:
    with limpet.open("memory:") as store:
        fill(store)
        for sort in SORTS:
            every = names(overview.sessions(store, sort=sort))
            for limit in (0, 1, 2, 3, 4, None):
                found = overview.sessions(store, sort=sort, limit=limit)
                assert found.total() == 3, (limit, sort)
                assert names(found) == every[:limit], (limit, sort)


def test_a_session_has_its_counts_and_its_newest_head(store: Store) -> None:
    fill(store)
    found = only(store, "c")
    assert (found.kinds, found.scopes, found.damaged) == (("agent", "graph"), 2, 0)
    assert found.head is not None
    assert (found.head.status, found.head.created_at) == ("running", at(9))
    stats = store.stats("c")
    assert found.counts == (3, 2, stats.logical_bytes, stats.stored_bytes)
    assert found.head_bytes == len("[9]") + len("{}")
    assert next(overview.sessions(store, prefix="c").read()).counts is None


def test_a_conversation_has_a_title_and_a_last_turn(store: Store) -> None:
    said = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hello"}]
    line = store.scope("s")
    line.save({"messages": said})
    assert only(store, "s").about.title == "hello"
    line.set_note("title", "  A \n greeting ")
    about = scope_of(store, "s").about
    assert about == only(store, "s").about
    assert about.title == "A greeting"
    assert about.last is not None
    assert about.last.role == "user"
    line.set_note("title", 7)
    assert only(store, "s").about.title == "hello"
    line.save({"step": 1, "file": "x"})
    assert only(store, "s").about[:3] == (None, None, ("step", "file"))


def test_branches_are_the_ends_of_lines(store: Store) -> None:
    line = store.scope("s")
    first = line.save({"n": 1})
    line.save({"n": 2})
    assert counts(only(store, "s")).branches == 1
    line.save({"n": 3}, parent=first.id)
    line.save({"n": 4}, parent=None, head=False)
    assert counts(only(store, "s")).branches == counts(scope_of(store, "s")).branches == 3
    line.save({"n": 5}, id="child", parent="late")
    line.save({"n": 6}, id="late", parent=first.id)  # saved after what follows it
    assert counts(only(store, "s")).branches == counts(scope_of(store, "s")).branches
    assert counts(scope_of(store, "s")).branches == len(list(line.leaves())) == 4


def test_a_draft_counts(store: Store) -> None:
    line = store.scope("s")
    draft = line.save({"n": 1}, keep=False)
    alone = scope_of(store, "s")
    assert alone.counts == (1, 1, draft.size, None)
    line.save({"n": 1})
    line.save({"n": 2}, keep=False, status="running")
    found = scope_of(store, "s")
    assert found.head is not None
    assert not found.head.kept
    assert counts(found)[:2] == (2, 1)
    session = only(store, "s")
    assert counts(session)[:2] == (2, 1)
    assert session.head == found.head
    assert counts(session).logical_bytes == counts(found).logical_bytes


def test_a_scope_tells_what_it_was_forked_from(store: Store) -> None:
    line = store.scope("s")
    source = line.save({"n": 1})
    side = line.fork(source.id, scope_id="side")
    side.save({"n": 2})
    assert scope_of(store, "s").forked_from is None
    assert scope_of(store, "s", "side").forked_from == SnapshotRef(source.scope, source.id)
    assert [each.forked_from for each in overview.scopes(store, "s")] == [None, None]


def test_a_scope_with_notes_alone_shows_nothing(store: Store) -> None:
    store.scope("s").set_note("title", "x")
    found, session = scope_of(store, "s"), only(store, "s")
    assert (found.head, found.damaged, counts(found)[:2]) == (None, False, (0, 0))
    assert (session.head, session.head_bytes, counts(session).snapshots) == (None, 0, 0)
    assert names(overview.sessions(store)) == ["s"]


def damage_heads(url: str, root: Path) -> None:
    """Make every head of the session `bad` unreadable, in the way of the engine."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(root / "agents.db")) as conn, conn:
            conn.execute(
                "UPDATE snapshots SET status = 'forged' WHERE seq IN (SELECT head FROM scopes"
                " WHERE session_id = 'bad')"
            )
    else:
        for path in root.rglob("sessions/bad/**/head"):
            path.write_bytes(b"{")


@pytest.mark.parametrize("url", ["sqlite", "folder"], indirect=True)
def test_damage_is_shown_and_hides_nothing_else(url: str, tmp_path: Path) -> None:
    with limpet.open(url) as store:
        for session_id in ("bad", "good"):
            store.scope(session_id).save({"n": 1}, created_at=at(1))
            store.scope(session_id).save({"n": 2}, created_at=at(2))
    damage_heads(url, tmp_path)
    with limpet.open(url) as store:
        assert names(overview.sessions(store)) == ["good", "bad"]
        bad, good = only(store, "bad"), only(store, "good")
        assert (bad.damaged, bad.head, bad.about.title) == (1, None, None)
        assert (good.damaged, counts(good)[:2]) == (0, (2, 1))
        assert scope_of(store, "bad").damaged
        assert not scope_of(store, "good").damaged
        for sort in ("name", "size", "snapshots"):
            assert sorted(names(overview.sessions(store, sort=sort))) == ["bad", "good"]


def test_a_session_that_goes_meanwhile_is_left_out(store: Store) -> None:
    fill(store)
    found = overview.sessions(store)
    store.delete_session("b")
    assert names(found) == ["c", "a"]


def test_counting_ends_when_it_has_taken_too_long(store: Store) -> None:
    fill(store)
    found = list(overview.sessions(store, counts=True, counts_s_max=1e-9).read())
    assert [each.counts is None for each in found] == [False, True, True]
    assert all(each.counts for each in overview.sessions(store, counts=True).read())


def test_pages_of_one_are_the_whole_list(store: Store) -> None:
    fill(store)
    store.scope("notes").set_note("n", 1)
    for sort, where in product(
        SORTS, (SessionFilter(), SessionFilter(kind="agent"), SessionFilter(text=""))
    ):
        every = names(overview.sessions(store, sort=sort, where=where))
        paged: list[str] = []
        after: str | None = None
        while True:
            page = overview.sessions(store, sort=sort, where=where, limit=1, after=after)
            paged += names(page)
            assert page.total() == len(every) == 4, (sort, where)
            after = page.next
            if after is None:
                break
        assert paged == every, (sort, where)


def test_sessions_are_filtered_by_their_heads_and_by_what_is_said(store: Store) -> None:
    fill(store)
    store.scope("d").save({"messages": [{"role": "user", "content": "Straße"}]}, status="failed")
    store.scope("e").save({}, status="waiting")  # as flows and workflows that ask a person are

    def found(**where: Any) -> list[str]:
        return names(overview.sessions(store, sort="name", where=SessionFilter(**where)))

    assert found(status="running") == ["c"]  # of the newest head alone
    assert found(kind="graph") == ["c"]
    assert found(attention=True) == ["c", "d", "e"]
    assert found(text="STRASSE") == ["d"]
    assert found(text="strasse", status="completed") == []
    told = {
        each.session_id: each.attention for each in overview.sessions(store, attention=True).read()
    }
    assert told == {
        "a": (),
        "b": (),
        "c": ("running, but no worker holds it",),
        "d": ("failed",),
        "e": ("waiting",),
    }


def test_a_search_for_a_text_goes_on_where_it_stopped(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "SEARCHED_MAX", 2)
    fill(store)
    store.scope("b").set_note("title", "wanted")
    first = overview.sessions(store, where=SessionFilter(text="wanted"), limit=5)
    assert (names(first), first.is_cut, first.total()) == (["b"], True, None)
    rest = overview.sessions(store, where=SessionFilter(text="wanted"), limit=5, after=first.next)
    assert (names(rest), rest.is_cut, rest.next) == ([], False, None)
