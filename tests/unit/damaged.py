"""Damage to the tables of a SQL engine, and what check and repair must make of it.

`CASES` is the damage that both engines can suffer; each engine adds its own. The body of every
case is `check_damage`. `Repairs` holds the tests of repair that are the same on both engines.
"""

from collections.abc import Callable, Set
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple, Protocol

import pytest

from limpet.backends.sql.check_rows import SEVERITIES
from limpet.core import codec
from limpet.core.rows import ROW_COLUMNS, Row, row_checksum, scope_checksum, session_checksum
from limpet.errors import Corrupt
from limpet.model import Finding, ScopeKey
from limpet.opening import draw
from limpet.protocol import Backend, Commit, Found, NoteWrite, Query


class Tables(Protocol):
    """The tables behind an engine's back. Statements have placeholders like `:seq`."""

    family: str
    """The column, or what is there instead of it."""

    def run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]: ...

    def dump(self) -> list[Any]:
        """Return every row of every table, and whatever else check must not change."""
        ...

    def close(self) -> None: ...


Damage = Callable[[Tables, int, int], None]
"""Takes the keys of a scope and of a snapshot: id-1 of `s`."""

S, OTHER, DRAFTED = ScopeKey("s"), ScopeKey("other"), ScopeKey("drafted")
SCOPES = (S, OTHER, DRAFTED)
IDS = ["id-0", "id-1", "id-2", "id-3"]
LABELS = b'{"kind":"x"}'

# The snapshot id-1 of `s`, and its scope.
WHERE_IT_HITS = (
    "SELECT n.scope_pk, n.seq FROM snapshots AS n JOIN scopes AS s ON s.pk = n.scope_pk"
    " JOIN sessions AS x ON x.pk = s.session_pk WHERE x.session_id = 's' AND n.id = 'id-1'"
)


def save(backend: Backend, scope: ScopeKey, id: str | None, **options: Any) -> str:
    # Nothing in common with the others, so that each is stored whole.
    text = f'{{"id":"{id}","text":"{Random(id).randbytes(300).hex()}"}}'.encode()
    commit = Commit(scope, text, "good", LABELS, b'{"m":1}', draw(), id=id, **options)
    return backend.commit(commit).id


def fill(backend: Backend) -> None:
    for scope in SCOPES:
        for id in IDS:
            save(backend, scope, id)
            backend.write_note(NoteWrite(scope, "on it", id, b"1", draw()))
        backend.write_note(NoteWrite(scope, "a", None, b"2", draw()))
    save(backend, DRAFTED, "branch", parent="id-0", head=False)
    save(backend, DRAFTED, "draft", keep=False)
    save(backend, S, "first", parent=None, head=False)  # the tip is not the head


def inspect(backend: Backend, *, repair: bool = False, limit: int = 7) -> list[Finding]:
    """Return all findings, page by page."""
    findings: list[Finding] = []
    after: str | None = ""
    while after is not None:
        found, after = backend.check(after, repair=repair, limit=limit)
        findings += found
    return findings


def codes(findings: list[Finding]) -> list[str]:
    return sorted({each.code for each in findings})


def readable(backend: Backend) -> dict[tuple[ScopeKey, str], Found]:
    """Return all snapshots with their states that can be read by their ids."""
    found = {}
    for scope in SCOPES:
        for id in (*IDS, "draft", "first"):
            with suppress(Corrupt):
                for each in backend.read_snapshots(scope, [id]):
                    found[scope, id] = each
    return found


def run(*statements: str) -> Damage:
    """Run statements, in which `:pk` is the scope, `:seq` the snapshot, `:empty` is `{}`."""

    def damage(tables: Tables, pk: int, seq: int) -> None:
        values = {"pk": pk, "seq": seq, "empty": b"{}", "nothing": b""}
        for statement in statements:
            used = {name: each for name, each in values.items() if f":{name}" in statement}
            tables.run(statement, **used)

    return damage


def written(*statements: str) -> Damage:
    """Run statements, and give all scopes checksums that hold: as if Limpet had written that."""

    def damage(tables: Tables, pk: int, seq: int) -> None:
        run(*statements)(tables, pk, seq)
        resum(tables)

    return damage


def resum(tables: Tables) -> None:
    found = tables.run(
        "SELECT x.session_id, s.scope_id, s.kind, s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor,"
        f" s.fence, s.lease_owner, s.lease_until, {tables.family}"
        " FROM scopes AS s JOIN sessions AS x ON x.pk = s.session_pk"
    )
    for row in found:
        checksum = scope_checksum(ScopeKey(*row[:3]), row[3:])
        statement = "UPDATE scopes SET checksum = :checksum WHERE pk = :pk"
        tables.run(statement, checksum=checksum, pk=row[3])


def another_body(encoding: int, body: bytes, base: int | None = None) -> Damage:
    """Replace the body, with a checksum that holds."""

    def damage(tables: Tables, pk: int, seq: int) -> None:
        address = f"{seq}:{'' if base is None else base}:".encode()
        packed = codec.address_body(encoding, body, address=address)
        tables.run(
            "UPDATE bodies SET base = :base, encoding = :encoding, body = :body,"
            " checksum = :checksum WHERE seq = :seq",
            **dict(zip(("encoding", "body", "checksum"), packed, strict=True)),
            base=base,
            seq=seq,
        )

    return damage


def another_row(**changes: Any) -> Damage:
    """Change the snapshot's row, with a checksum that holds."""

    def damage(tables: Tables, pk: int, seq: int) -> None:
        columns = ", ".join(ROW_COLUMNS)
        (found,) = tables.run(f"SELECT {columns} FROM snapshots WHERE seq = :seq", seq=seq)
        checksum = row_checksum(Row(*found)._replace(**changes), pk)
        sets = ", ".join(f"{name} = :{name}" for name in changes)
        statement = f"UPDATE snapshots SET {sets}, checksum = :checksum WHERE seq = :seq"
        tables.run(statement, **changes, checksum=checksum, seq=seq)

    return damage


def flipped_body(tables: Tables, pk: int, seq: int) -> None:
    ((body,),) = tables.run("SELECT body FROM bodies WHERE seq = :seq", seq=seq)
    tables.run("UPDATE bodies SET body = :body WHERE seq = :seq", body=b"[" + body[1:], seq=seq)


class Case(NamedTuple):
    """Damage, what check finds, what a check after repair still finds, and what is out of reach."""

    damage: Damage
    found: set[str]
    left: Set[str] = frozenset()
    lost: Set[tuple[ScopeKey, str]] = frozenset()


HIT = {(S, "id-1")}
ALL_OF_S = {(S, id) for id in (*IDS, "first")}
LAST_DRAFT = "(SELECT max(seq) FROM snapshots WHERE NOT kept)"


def stays(code: str, damage: Damage, lost: set[tuple[ScopeKey, str]] = HIT) -> Case:
    return Case(damage, {code}, {code}, lost)


def mended(code: str, *statements: str) -> Case:
    return Case(run(*statements), {code})


def settled(code: str, *statements: str) -> Case:
    return Case(written(*statements), {code})


def no_name(code: str, damage: Damage) -> Case:
    return Case(damage, {"name_wrong", code}, {"name_wrong", code}, ALL_OF_S)


def empty_session(tables: Tables, pk: int, seq: int) -> None:
    statement = "INSERT INTO sessions (pk, session_id, checksum) VALUES (:pk, 'e', :checksum)"
    tables.run(statement, pk=999, checksum=session_checksum("e", 999))


ORPHAN = "INSERT INTO bodies (seq, checksum, encoding, body) VALUES (999, 0, 0, :empty)"

CASES = {
    # Sessions and scopes
    "head of nothing": settled("head_missing", "UPDATE scopes SET head_seq = 999 WHERE pk = :pk"),
    "head of another scope": settled(
        "head_missing",
        "UPDATE scopes SET head_seq = (SELECT seq FROM snapshots WHERE scope_pk <> :pk LIMIT 1)"
        " WHERE pk = :pk",
    ),
    "head of nothing, with a draft": Case(
        written(f"UPDATE scopes SET head_seq = 999 WHERE head_seq = {LAST_DRAFT}"),
        {"head_missing", "draft_unreachable"},
    ),
    "tip": settled("tip_wrong", "UPDATE scopes SET tip_seq = :seq WHERE pk = :pk"),
    "tip gone": settled("tip_wrong", "UPDATE scopes SET tip_seq = NULL WHERE pk = :pk"),
    "next seq": settled("next_seq_low", "UPDATE scopes SET next_seq = :seq WHERE pk = :pk"),
    "floor": settled("floor_wrong", "UPDATE scopes SET floor = 'zzz' WHERE pk = :pk"),
    "session name": no_name(
        "session_damaged", run("UPDATE sessions SET session_id = '' WHERE session_id = 's'")
    ),
    "scope name": no_name("scope_damaged", run("UPDATE scopes SET scope_id = '' WHERE pk = :pk")),
    "kind": no_name("scope_damaged", run("UPDATE scopes SET kind = 'A!' WHERE pk = :pk")),
    "another session name": stays(
        "session_damaged",
        run("UPDATE sessions SET session_id = 'renamed' WHERE session_id = 's'"),
        ALL_OF_S,
    ),
    "checksum of a session": mended(
        "session_damaged", "UPDATE sessions SET checksum = 5 WHERE session_id = 's'"
    ),
    "bit of a session name": mended(
        "session_damaged", "UPDATE sessions SET session_id = 'r' WHERE session_id = 's'"
    ),
    "bit of a kind": mended("scope_damaged", "UPDATE scopes SET kind = 'agenu' WHERE pk = :pk"),
    "older head": mended("scope_damaged", "UPDATE scopes SET head_seq = :seq WHERE pk = :pk"),
    "older head and tip": Case(
        run("UPDATE scopes SET head_seq = :seq, tip_seq = :seq WHERE pk = :pk"),
        {"scope_damaged", "tip_wrong"},
    ),
    "owner of a lease": mended(
        "scope_damaged", "UPDATE scopes SET lease_owner = 'nobody' WHERE pk = :pk"
    ),
    "checksum of a scope": mended("scope_damaged", "UPDATE scopes SET checksum = 5 WHERE pk = :pk"),
    "session empty": stays("session_empty", empty_session, set()),
    "session gone": Case(
        run("DELETE FROM sessions WHERE session_id = 's'"),
        {"scope_without_session"},
        lost=ALL_OF_S,
    ),
    "scope gone": Case(
        run("DELETE FROM scopes WHERE pk = :pk"),
        {"session_empty", "snapshots_without_scope", "notes_without_scope"},
        {"session_empty"},
        ALL_OF_S,
    ),
    "scope gone, notes alone": Case(
        run("UPDATE notes SET scope_pk = 77777 WHERE scope_pk = :pk AND name = 'a'"),
        {"notes_without_scope", "note_damaged"},
        {"note_damaged"},
    ),
    # Snapshots
    "metadata": stays(
        "snapshot_damaged", run("UPDATE snapshots SET metadata = :empty WHERE seq = :seq")
    ),
    "labels": stays(
        "snapshot_damaged", run("UPDATE snapshots SET labels = :empty WHERE seq = :seq")
    ),
    "status": stays(
        "snapshot_damaged", run("UPDATE snapshots SET status = 'bad' WHERE seq = :seq")
    ),
    "id": Case(
        run("UPDATE snapshots SET id = 'other' WHERE seq = :seq"),
        {"snapshot_damaged"},
        {"snapshot_damaged"},
        HIT,
    ),
    "facts not JSON": stays("snapshot_damaged", another_row(metadata=b"{")),
    "labels no object": stays("snapshot_damaged", another_row(labels=b"[1]")),
    "time out of range": stays("snapshot_damaged", another_row(created_at=2**62)),
    "draft not the head": stays("draft_unreachable", another_row(kept=False)),
    "draft without a head": settled(
        "draft_unreachable", f"UPDATE scopes SET head_seq = NULL WHERE head_seq = {LAST_DRAFT}"
    ),
    "directly after its parent": mended(
        "apart_wrong", "UPDATE snapshots SET apart = (1 = 0) WHERE id = 'branch'"
    ),
    "label not indexed": mended("label_missing", "DELETE FROM labels WHERE seq = :seq"),
    "label changed in the index": Case(
        run("UPDATE labels SET value = 'y' WHERE seq = :seq"), {"label_missing", "label_surplus"}
    ),
    "label too much": mended(
        "label_surplus", "INSERT INTO labels (name, value, seq) VALUES ('n', 'v', :seq)"
    ),
    "label of nothing": mended(
        "label_without_snapshot", "INSERT INTO labels (name, value, seq) VALUES ('n', 'v', 999)"
    ),
    # Bodies
    "body gone": stays("body_missing", run("DELETE FROM bodies WHERE seq = :seq")),
    "body flipped": stays("body_damaged", flipped_body),
    "body of unknown encoding": stays(
        "body_damaged", run("UPDATE bodies SET encoding = 77 WHERE seq = :seq")
    ),
    "body not zstd": stays("body_damaged", another_body(codec.ZSTD, b"no zstd")),
    "body not JSON": stays("body_not_json", another_body(codec.WHOLE, b"{")),
    "body of another size": stays("body_size_wrong", another_body(codec.WHOLE, b"{}")),
    "base gone": stays("base_missing", another_body(codec.WHOLE, b"{}", base=999)),
    "body of nothing": mended("body_without_snapshot", ORPHAN),
    "body moved": Case(
        run("UPDATE bodies SET seq = 999 WHERE seq = :seq"),
        {"body_missing", "body_without_snapshot"},
        {"body_missing", "body_without_snapshot"},
        HIT,
    ),
    # Notes
    "note": stays("note_damaged", run("UPDATE notes SET value = :empty WHERE name = 'a'"), set()),
    "note name": stays("note_damaged", run("UPDATE notes SET name = 'b' WHERE name = 'a'"), set()),
    "note not JSON": stays(
        "note_damaged",
        run("UPDATE notes SET value = :nothing WHERE pk = (SELECT min(pk) FROM notes)"),
        set(),
    ),
}


def damage(tables: Tables, case: Case) -> None:
    ((pk, seq),) = tables.run(WHERE_IT_HITS)
    case.damage(tables, pk, seq)
    tables.close()


def check_damage(
    backend: Backend, case: Case, tables: Tables, before: dict[tuple[ScopeKey, str], Found]
) -> None:
    """Check names damage and changes nothing; repair leaves what it cannot mend, and harms nothing.

    `before` is what could be read before the damage was done.
    """
    damaged = tables.dump()
    found = inspect(backend)
    assert codes(found) == sorted(case.found)
    assert not any(each.repaired for each in found)
    assert tables.dump() == damaged

    repaired = inspect(backend, repair=True)
    assert set(codes(repaired)) <= case.found
    assert {each.code for each in repaired if not each.repaired} == case.left
    if not any(each.repaired for each in repaired):
        assert tables.dump() == damaged

    after = tables.dump()
    left = inspect(backend)
    assert codes(left) == sorted(case.left)
    assert inspect(backend, repair=True) == left
    assert tables.dump() == after
    kept = {key: each for key, each in before.items() if key not in case.lost}
    assert not kept or readable(backend).items() >= kept.items()
    for each in [*found, *repaired]:
        assert each.severity == SEVERITIES[each.code]
        assert each.message[0].islower()
        each.message.encode()


class Repairs:
    """Needs the fixtures `backend` and `tables`."""

    def test_a_healthy_store_has_no_findings(self, backend: Backend) -> None:
        assert inspect(backend) == []
        assert inspect(backend, repair=True) == []

    @pytest.mark.parametrize("name", ["metadata", "body gone", "body flipped", "label not indexed"])
    def test_a_finding_has_the_address_of_its_snapshot(
        self, backend: Backend, tables: Tables, name: str
    ) -> None:
        """What cannot be mended can be deleted, and then check no longer finds it."""
        damage(tables, CASES[name])

        (finding,) = inspect(backend)
        assert (finding.scope, finding.id) == (S, "id-1")
        backend.delete_snapshots(S, ["id-1"])
        assert codes(inspect(backend)) == []

    def test_a_lost_head_is_the_draft_if_there_is_one(
        self, backend: Backend, tables: Tables
    ) -> None:
        for name in ("head of nothing, with a draft", "head of nothing"):
            damage(tables, CASES[name])
        inspect(backend, repair=True)

        heads = [backend.read_info(scope, None) for scope in (DRAFTED, S)]
        assert [head and head.id for head in heads] == ["draft", "first"]

    def test_a_lost_scope_is_found_again(self, backend: Backend, tables: Tables) -> None:
        """With all that belonged to it, under a name that says so."""
        before = backend.read_snapshots(S, IDS)
        notes = backend.list_notes(S, on=[None, *IDS], name=None, after="", limit=99)
        minted = save(backend, S, None)
        damage(tables, CASES["scope gone"])
        found = {each.code: each for each in inspect(backend, repair=True)}

        key = found["snapshots_without_scope"].scope
        assert key is not None
        assert key == found["notes_without_scope"].scope
        assert key.session_id == "lost+found"
        states = backend.read_snapshots(key, IDS)
        assert [body for _, body in states] == [body for _, body in before]
        assert [info.revision for info, _ in states] == [info.revision for info, _ in before]
        assert backend.list_notes(key, on=[None, *IDS], name=None, after="", limit=99) == notes
        head = backend.read_info(key, None)
        assert head is not None
        assert head.id == minted
        assert save(backend, key, None) > minted
        assert backend.delete_session("lost+found") == len(IDS) + 3
        assert backend.delete_session("s") == 0
        assert inspect(backend) == []

    def test_a_lost_session_is_found_again(self, backend: Backend, tables: Tables) -> None:
        before = backend.read_snapshots(S, IDS)
        damage(tables, CASES["session gone"])
        (found,) = inspect(backend, repair=True)

        assert found.scope is not None
        assert found.scope.session_id.startswith("lost+found/")
        assert found.scope[1:] == S[1:]
        states = backend.read_snapshots(found.scope, IDS)
        assert [body for _, body in states] == [body for _, body in before]

    @pytest.mark.parametrize("name", ["scope gone", "session gone"])
    def test_a_name_that_is_taken_is_not_used_for_what_was_lost(
        self, backend: Backend, tables: Tables, name: str
    ) -> None:
        (session_pk, pk), *_ = tables.run("SELECT session_pk, pk FROM scopes ORDER BY pk")
        save(backend, ScopeKey("lost+found", f"scope-{pk}"), "theirs")
        save(backend, ScopeKey(f"lost+found/session-{session_pk}"), "theirs")
        damage(tables, CASES[name])
        before = tables.dump()

        assert not any(each.repaired for each in inspect(backend, repair=True))
        assert tables.dump() == before

    def test_a_floor_is_the_greatest_id_that_can_have_been_minted(
        self, backend: Backend, tables: Tables
    ) -> None:
        """Not an id that a caller gave: there may be no greater one."""
        minted = [save(backend, S, None) for _ in range(3)]
        save(backend, S, "ffffffff-ffff-7fff-bfff-ffffffffffff")
        damage(tables, CASES["floor"])
        inspect(backend, repair=True)

        (floor,), *_ = tables.run("SELECT floor FROM scopes ORDER BY pk")
        assert floor == max(minted)
        assert save(backend, S, None) > floor

    def test_lost_labels_are_indexed_again(self, backend: Backend, tables: Tables) -> None:
        before = tables.run("SELECT name, value, seq FROM labels ORDER BY seq")
        tables.run("DELETE FROM labels")
        assert all(each.repaired for each in inspect(backend, repair=True))
        assert tables.run("SELECT name, value, seq FROM labels ORDER BY seq") == before

    def test_a_writer_that_remembers_the_head_sees_the_repaired_one(
        self, backend: Backend, tables: Tables
    ) -> None:
        first = save(backend, S, None)
        damage(tables, CASES["head of nothing"])
        inspect(backend, repair=True)
        second = save(backend, S, None)

        assert [info.id for info in backend.list_snapshots(Query(S), limit=2)] == [second, first]
        assert inspect(backend) == []
