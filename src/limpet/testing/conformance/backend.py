"""Chapter: the engine itself. What `Backend` promises, called directly."""

import re
from typing import Any

import pytest

from limpet import (
    ANY,
    JSON,
    Conflict,
    InvalidInput,
    NotFound,
    ScopeKey,
    SnapshotRef,
    Unavailable,
    Unsupported,
)
from limpet.protocol import (
    Append,
    Backend,
    Commit,
    NoteChange,
    NoteDelete,
    NoteQuery,
    NoteWrite,
    Query,
    SessionAge,
    Stamp,
)
from limpet.testing.kit import Kit, names, outcome

SCOPE = ScopeKey("chat-42", "planner")
_REVISION = re.compile(r"[0-9a-f]+\.[0-9a-f]+\.[0-9a-f]{16}")


def _commit(number: int, **facts: Any) -> Commit:
    given = {
        "scope": SCOPE,
        "body": b'{"n":%d}' % number,
        "status": "completed",
        "labels": b"{}",
        "metadata": b"{}",
        "stamp": Stamp(1_000_000 + number, f"{number:016x}", number),
        **facts,
    }
    return Commit(**given)


def _note(number: int, name: str, value: bytes | None = None, **facts: Any) -> NoteWrite:
    stamp = Stamp(1_000_000 + number, f"{number:016x}", number)
    encoded = b'{"n":%d}' % number if value is None else value
    given = {"scope": SCOPE, "name": name, "on": None, "value": encoded, "stamp": stamp, **facts}
    return NoteWrite(**given)


def _gone(name: str, **facts: Any) -> NoteDelete:
    return NoteDelete(**{"scope": SCOPE, "name": name, "on": None, **facts})


class BackendPromises(Kit):
    """Replays, fences, pages and tokens."""

    def test_an_engine_says_what_it_can_do(self, backend: Backend) -> None:
        assert backend.capabilities <= {"durable", "index", "atomic"}
        assert isinstance(backend.blocking, bool)

    def test_a_replayed_commit_is_found_by_its_nonce(self, backend: Backend) -> None:
        """With `again` a commit that is already stored gives its first answer, and no second."""
        first = backend.commit(_commit(1))
        draft = backend.commit(_commit(2, keep=False))
        for number, answer in ((1, first), (2, draft)):
            replay = _commit(number, keep=number == 1, again=True)
            assert backend.commit(replay) == answer
            assert backend.commit(replay._replace(expect="stale")) == answer

        assert backend.list_snapshots(Query(SCOPE), limit=10) == [first]
        assert backend.read_info(SCOPE, None) == draft

    def test_a_replayed_append_or_update_is_found_by_its_nonce(self, backend: Backend) -> None:
        append = _commit(1, body=Append("m", b"[1]", 1_000))
        appended = backend.commit(append)
        assert backend.commit(append._replace(again=True)) == appended
        update = _commit(2, id=appended.id, replaces=appended.revision)
        updated = backend.commit(update)
        assert backend.commit(update._replace(again=True)) == updated
        # What it stored is replaced. It is not stored once more: its first answer is given, if that
        # is remembered, or it is in doubt.
        answer = outcome(lambda: backend.commit(append._replace(again=True)))
        assert answer == appended or (isinstance(answer, Unavailable) and not answer.outcome_known)

        assert [body for _, body in backend.read_snapshots(SCOPE, [None])] == [b'{"n":2}']
        assert backend.list_snapshots(Query(SCOPE), limit=10) == [updated]

    def test_several_snapshots_are_replaced(self, backend: Backend) -> None:
        """What does not exist is left out, and what is repeated changes nothing."""
        old = [backend.commit(_commit(n, id=f"{n}", labels=b'{"l":"1"}')) for n in range(40)]
        changes = [
            _commit(100 + n, id=f"{n}", replaces=each.revision, body=b'{"now":%d}' % n)
            for n, each in enumerate(old)
            if n % 3
        ]
        backend.delete_snapshots(SCOPE, ["1"])

        assert backend.replace_snapshots(changes) == len(changes) - 1
        with pytest.raises(Conflict):
            backend.replace_snapshots([changes[5]._replace(stamp=Stamp(1, "f" * 16, 1))])

        found = backend.read_snapshots(SCOPE, [f"{n}" for n in range(40)])
        expected = [b'{"now":%d}' % n if n % 3 else b'{"n":%d}' % n for n in range(40) if n != 1]
        assert [body for _, body in found] == expected
        for info, _ in found:
            is_new = int(info.id) % 3 != 0
            assert (info.revision == old[int(info.id)].revision) != is_new
            assert (info.labels == {}) == is_new
        assert backend.replace_snapshots([_commit(200, id="none", replaces="1.0.0")]) == 0

    def test_a_commit_that_never_arrived_is_stored_by_its_replay(self, backend: Backend) -> None:
        """`again` says that it may be stored, not that it is."""
        backend.commit(_commit(1))
        second = backend.commit(_commit(2, again=True))

        assert backend.read_info(SCOPE, None) == second
        assert len(backend.list_snapshots(Query(SCOPE), limit=10)) == 2

    def test_without_again_a_minted_commit_is_new(self, backend: Backend) -> None:
        first = backend.commit(_commit(1))
        second = backend.commit(_commit(1))

        assert second.id > first.id
        assert len(backend.list_snapshots(Query(SCOPE), limit=10)) == 2

    def test_replaces_compares_the_snapshots_own_revision(self, backend: Backend) -> None:
        """Another revision is Conflict, no such snapshot NotFound; nothing is stored."""
        first = backend.commit(_commit(1, id="a"))
        second = backend.commit(_commit(2, id="a", replaces=first.revision))

        with pytest.raises(Conflict):
            backend.commit(_commit(3, id="a", replaces=first.revision))
        with pytest.raises(NotFound):
            backend.commit(_commit(3, id="b", replaces=first.revision))
        with pytest.raises(NotFound):
            backend.commit(_commit(3, scope=ScopeKey("new"), id="a", replaces=first.revision))
        assert backend.list_snapshots(Query(SCOPE), limit=10) == [second]
        assert backend.list_sessions(prefix="", after="", limit=10) == ["chat-42"]

    def test_a_revision_tells_its_place(self, backend: Backend) -> None:
        """`<seq hex>.<rev hex>.<nonce>`: an update keeps `seq` and raises `rev`."""
        first = backend.commit(_commit(1, id="a"))
        updated = backend.commit(_commit(2, id="a", replaces=first.revision))
        backend.delete_snapshots(SCOPE, ["a"])
        second = backend.commit(_commit(3, id="a"))

        for info in (first, updated, second):
            assert _REVISION.fullmatch(info.revision)
        seqs = [int(i.revision.split(".")[0], 16) for i in (first, updated, second)]
        assert seqs[0] == seqs[1] < seqs[2]
        written = [int(i.revision.split(".")[1], 16) for i in (first, updated)]
        assert written[0] < written[1]
        assert updated.revision.endswith(f".{2:016x}")

    def test_pages_are_no_longer_than_asked(self, backend: Backend) -> None:
        for number in range(5):
            scope = ScopeKey(f"s{number}")
            backend.commit(_commit(number, id=f"{number}"))
            backend.commit(_commit(number, scope=scope, id="x"))
            for on in ("a", "b"):
                backend.write_note(
                    NoteWrite(SCOPE, f"{number}", on, b"1", Stamp(1, f"{number:016x}", 1), ANY)
                )

        page = backend.list_snapshots(Query(SCOPE), limit=2)
        assert names(page) == ["4", "3"]
        seq = int(page[-1].revision.split(".")[0], 16)
        assert names(backend.list_snapshots(Query(SCOPE, after=seq), limit=9)) == ["2", "1", "0"]
        assert backend.list_ids(SCOPE, after="1", limit=2) == ["2", "3"]
        assert backend.list_sessions(prefix="s", after="s0", limit=3) == ["s1", "s2", "s3"]
        scopes = backend.list_scopes(
            session_id=None, kind=None, prefix="s", after=ScopeKey("s2"), limit=1
        )
        assert [info.key for info in scopes] == [ScopeKey("s3")]
        notes = backend.list_notes(SCOPE, on=["b", "a"], name=None, after="2", limit=3)
        assert [(n.snapshot_id, n.name) for n in notes] == [("b", "3"), ("b", "4"), ("a", "0")]
        named = backend.list_notes(SCOPE, on=["b", None, "a"], name="1", after="", limit=9)
        assert [(n.snapshot_id, n.name) for n in named] == [("b", "1"), ("a", "1")]

    def test_sessions_are_listed_by_their_newest_head(self, backend: Backend) -> None:
        """By the greatest time of all their heads, then by name; without a head they come last."""
        times = {"s1": 5, "s2": 9, "s3": 7, "s4": 7, "other": 8}
        for number, (name, created_at) in enumerate(times.items()):
            backend.commit(_commit(number, scope=ScopeKey(name), id="x", created_at=created_at))
        for number, created_at in enumerate((1, 8)):
            line = ScopeKey("s1", "line", "graph")
            backend.commit(_commit(number, scope=line, id=f"{number}", created_at=created_at))
        backend.commit(_commit(7, scope=ScopeKey("s2"), id="y", created_at=6))
        for name in ("s0", "s5"):
            backend.write_note(NoteWrite(ScopeKey(name), "n", None, b"1", Stamp(1, "f" * 16, 1)))

        ages = [("s1", 8), ("s3", 7), ("s4", 7), ("s2", 6), ("s0", None), ("s5", None)]
        assert backend.list_newest(prefix="s", after=None, limit=9) == ages
        for at, age in enumerate(ages):
            rest = backend.list_newest(prefix="s", after=SessionAge(*age), limit=2)
            assert rest == ages[at + 1 : at + 3]
        assert backend.list_newest(prefix="", after=None, limit=1) == [("other", 8)]
        assert backend.list_newest(prefix="none", after=None, limit=1) == []

    def test_several_notes_are_written_and_read(self, backend: Backend) -> None:
        """In the order of the names; what is not there is left out, and is deleted quietly."""
        backend.write_notes([_note(n, f"n{n}") for n in range(4)])
        backend.write_notes([_note(5, "n1", b"[5]"), _gone("n2"), _gone("n9")])
        backend.write_note(_note(6, "n1", on="id"))
        backend.write_notes([])

        found = backend.read_notes(SCOPE, ["n3", "n2", "n1", "n0", "x"])
        assert [(n.name, n.value) for n in found] == [
            ("n3", {"n": 3}),
            ("n1", [5]),
            ("n0", {"n": 0}),
        ]
        assert {n.scope for n in found} == {SCOPE}
        assert found[1].updated_at == 1_000_005
        assert [n.name for n in backend.read_notes(SCOPE, ["n1"])] == ["n1"]
        assert backend.read_notes(SCOPE, ["n2"]) == backend.read_notes(SCOPE, []) == []
        assert backend.read_notes(ScopeKey("none"), ["n1", "n2"]) == []
        backend.write_notes([_gone("n1")._replace(scope=ScopeKey("none"))])
        assert backend.list_sessions(prefix="", after="", limit=9) == ["chat-42"]

    def test_several_notes_are_one_step(self, backend: Backend) -> None:
        """A note that is not at `expect`, or a lease that is lost, is a conflict for all."""
        backend.write_notes([_note(1, "a"), _note(2, "b")])
        a, b = backend.read_notes(SCOPE, ["a", "b"])
        backend.write_notes([_note(3, "a", expect=a.revision), _gone("b", expect=b.revision)])
        (a,) = before = backend.read_notes(SCOPE, ["a", "b", "c"])

        refused: list[list[NoteChange]] = [
            [_note(4, "a", expect=b.revision)],
            [_note(4, "a", expect=a.revision), _gone("c", expect=b.revision)],
            [_note(4, "c"), _note(5, "a", expect=None)],
            [_note(4, "c"), _note(5, "d", fence="lost")],
        ]
        for changes in refused:
            with pytest.raises(Conflict):
                backend.write_notes(changes)
            if "atomic" in backend.capabilities:
                assert backend.read_notes(SCOPE, ["a", "b", "c", "d"]) == before

    def test_a_note_keeps_what_it_is_told_to(self, backend: Backend) -> None:
        """One member, the first: as the note before has it, if that is an object that has it."""
        steps = [
            (b'{"n":1}', b"1", {"at": 1, "n": 1}),
            (b'{"n":2}', b"2", {"at": 1, "n": 2}),
            (b"{}", b"3", {"at": 1}),
            (b' {"n":%d}' % 2**70, b"4", {"at": 1, "n": 2**70}),
        ]
        for number, (value, at, stored) in enumerate(steps):
            backend.write_notes([_note(number, "a", value, keep=("at", at))])
            assert backend.read_notes(SCOPE, ["a"])[0].value == stored
        for number, before in enumerate((b"[5]", b'{"n":5}', b' {"at":%d}' % 2**70)):
            backend.write_notes([_note(10 + number, "a", before)])
            backend.write_notes([_note(20 + number, "a", b'{"n":6}', keep=("at", b'"x"'))])
            kept = 2**70 if number == 2 else "x"
            assert backend.read_notes(SCOPE, ["a"])[0].value == {"at": kept, "n": 6}

    def test_notes_are_found_the_last_written_first(self, backend: Backend) -> None:
        """Below a session, by whole names; notes on snapshots and of other kinds are not."""
        places = ["a", "a/b", "a/b/c", "ab", "a-b", "b", "a/z" + "y" * 300]
        for number, place in enumerate(places):
            key = ScopeKey(place, "main", "items")
            backend.write_notes([_note(2 * number, "y", scope=key)])
            backend.write_notes([_note(2 * number + 1, "x", scope=key)])
            backend.write_note(_note(number, "other", scope=ScopeKey(place)))
            backend.write_note(_note(number, "other", scope=key._replace(scope_id="side")))
            backend.write_note(_note(number, "other", scope=key, on="id"))
        key = ScopeKey("a/b", "main", "items")
        backend.write_notes([_note(50, "y", scope=key), _gone("x", scope=key)])

        def found(under: str, limit: int = 99) -> list[tuple[str, str]]:
            query = NoteQuery("main", "items", under)
            return [(n.scope[0], n.name) for n in backend.find_notes(query, limit=limit)]

        long = places[-1]
        below = [(long, "x"), (long, "y"), ("a/b/c", "x"), ("a/b/c", "y")]
        assert found("a") == [("a/b", "y"), *below, ("a", "x"), ("a", "y")]
        assert found("a", 2) == [("a/b", "y"), (long, "x")]
        assert found("a/b") == [("a/b", "y"), *below[2:]]
        assert found("ab") == [("ab", "x"), ("ab", "y")]
        assert found("a/b/") == found("c") == []
        assert len(found("")) == 13
        bare = backend.find_notes(NoteQuery("main", "items", "a/b", values=False), limit=2)
        full = backend.find_notes(NoteQuery("main", "items", "a/b"), limit=2)
        assert bare == [each._replace(value=None) for each in full]
        same = [_note(60, f"n{n}", scope=key) for n in range(9)]
        backend.write_notes(same)
        assert found("a/b", 4) == found("a/b")[:4]
        assert len(set(found("a/b"))) == 12

    def test_notes_are_found_by_what_they_hold(self, backend: Backend) -> None:
        values: list[bytes] = [
            b'{"n":1,"s":"a","in":{"deep":[1,{"x":2}]}}',
            b'{"n":2.5,"s":"b"}',
            b'{"n":"3","s":null}',
            b'{"n":true,"text":"%s"}' % (b"long " * 200),
            b' {"n":%d}' % 2**70,
            b"7",
        ]
        for number, value in enumerate(values):
            backend.write_notes([_note(9 - number, str(number), value)])
        patterns: list[tuple[JSON, str]] = [
            (None, "012345"),
            ({}, "01234"),
            ({"n": 1}, "03"),
            ({"n": {"$ne": 1}}, "124"),
            ({"n": {"$gt": 1}}, "124"),
            ({"n": {"$gte": 1, "$lt": 3}}, "013"),
            ({"n": {"$lte": 2.5}}, "013"),
            ({"n": {"$gt": 2**69}}, "4"),
            ({"s": None}, "234"),
            ({"s": {"$gte": "b"}}, "1"),
            ({"s": {"$eq": "a"}, "n": 1}, "0"),
            ({"s": {"$not": {"$lt": "b"}}}, "1234"),
            ({"in": {"deep": [1, {"x": {"$gt": 1}}]}}, "0"),
            ({"in": {"deep": [1]}}, ""),
            ({"text": "long " * 200}, "3"),
            (7, "5"),
        ]
        for pattern, expected in patterns:
            query = NoteQuery("planner", "agent", where=pattern)
            for limit in (99, 2):
                found = backend.find_notes(query, limit=limit)
                assert "".join(n.name for n in found) == expected[:limit], pattern

    def test_snapshots_of_all_scopes_need_an_index(self, backend: Backend) -> None:
        labels = b'{"run":"1"}'
        backend.commit(_commit(1, scope=ScopeKey("a/1"), id="x", labels=labels))
        backend.commit(_commit(2, scope=ScopeKey("b/1", "main", "graph"), id="x", labels=labels))
        backend.commit(_commit(3, scope=ScopeKey("a/2"), id="y"))
        queries = {
            Query(id="x"): ["b/1", "a/1"],
            Query(id="x", prefix="a/"): ["a/1"],
            Query(labels=(("run", "1"),)): ["b/1", "a/1"],
            Query(labels=(("run", "1"),), prefix="a/"): ["a/1"],
            Query(prefix="a/"): ["a/2", "a/1"],
            Query(): ["a/2", "b/1", "a/1"],
        }

        for query, sessions in queries.items():
            if "index" in backend.capabilities:
                found = backend.list_snapshots(query, limit=10)
                assert [info.session_id for info in found] == sessions
            else:
                with pytest.raises(Unsupported):
                    backend.list_snapshots(query, limit=10)

    def test_refs_are_found_by_the_beginning_of_an_id(self, backend: Backend) -> None:
        """Kept snapshots of all scopes, long and awkward ids too; no drafts, nothing deleted."""
        ids = ["ab", "abc", "ab~", "aB", "ab" * 60, "ab" * 60 + "x", "äb", "b"]
        for number, id in enumerate(ids):
            backend.commit(_commit(number, scope=ScopeKey(f"s/{number % 3}"), id=id))
        backend.commit(_commit(20, scope=ScopeKey("t", "x" * 300), id="abcd"))
        backend.commit(_commit(21, scope=ScopeKey("t"), id="ab-gone"))
        backend.delete_snapshots(ScopeKey("t"), ["ab-gone"])
        backend.commit(_commit(22, scope=ScopeKey("t"), id="ab-draft", keep=False))
        if "index" not in backend.capabilities:
            with pytest.raises(Unsupported):
                backend.find_refs("a", limit=10)
            return

        for start in ("", "a", "ab", "abc", "ab" * 60, "ä", "c", "ab~", "ab+"):
            found = [ref.id for ref in backend.find_refs(start, limit=100)]
            assert sorted(found) == sorted(i for i in [*ids, "abcd"] if i.startswith(start))
        assert SnapshotRef(ScopeKey("t", "x" * 300), "abcd") in backend.find_refs("abcd", limit=9)
        assert len(backend.find_refs("a", limit=2)) == 2

    def test_close_may_be_repeated_and_is_final(self, backend: Backend) -> None:
        backend.commit(_commit(1))
        backend.close()
        backend.close()

        with pytest.raises(InvalidInput):
            backend.read_info(SCOPE, None)
        with pytest.raises(InvalidInput):
            backend.commit(_commit(2))
