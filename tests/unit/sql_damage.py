"""Damage to the tables of a SQL storage, and what check and repair must make of it.

`CASES` is the damage that both engines can suffer; each engine adds its own. The body of every
case is `check_damage`.
"""

from collections.abc import Callable, Set
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple, Protocol

from limpet.backends.sql.checking import SEVERITIES
from limpet.backends.sql.columns import (
    COLUMNS,
    ROW_COLUMNS,
    SCOPE_COLUMNS,
    read_scope,
    row_values,
    scope_values,
    tail_values,
    verified_row,
)
from limpet.core.encryption import PLAIN
from limpet.errors import Corrupt
from limpet.model import Finding, ScopeKey
from limpet.opening import draw, store_over
from limpet.protocol import Backend, Commit, NoteWrite
from limpet.storage import WHOLE, ZSTD, TailRow


class Tables(Protocol):
    """The tables behind an engine's back. Statements have placeholders like `:seq`."""

    def run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]: ...

    def dump(self) -> list[Any]:
        """Return every row of every table, and whatever else check must not change."""
        ...

    def close(self) -> None: ...


Damage = Callable[[Tables, int, int], None]
"""Takes the keys of a scope and of a snapshot: id-1 of `s`."""

S, OTHER, DRAFTED = ScopeKey("s"), ScopeKey("other"), ScopeKey("drafted")
LONG, FORK = ScopeKey("long"), ScopeKey("long", "fork")
IDS = ["id-0", "id-1", "id-2", "id-3"]
LABELS = b'{"kind":"x"}'
_ROLLED_BYTES = 300_000  # a state that is moved into a segment at once

# The snapshot id-1 of `s`, and its scope.
WHERE_IT_HITS = (
    "SELECT n.scope_pk, n.seq FROM snapshots AS n JOIN scopes AS s ON s.pk = n.scope_pk"
    " WHERE s.session_id = 's' AND n.id = 'id-1'"
)


def save(backend: Backend, scope: ScopeKey, id: str | None, **options: Any) -> str:
    # Nothing in common with the others, so that each is stored whole.
    text = f'{{"id":"{id}","text":"{Random(id).randbytes(300).hex()}"}}'.encode()
    commit = Commit(scope, text, "good", LABELS, b'{"m":1}', draw(), id=id, **options)
    return backend.commit(commit).id


def fill(backend: Backend) -> None:
    for scope in (S, OTHER, DRAFTED):
        for id in IDS:
            save(backend, scope, id)
            backend.write_note(NoteWrite(scope, "on it", id, b"1", draw()))
        backend.write_note(NoteWrite(scope, "a", None, b"2", draw()))
    save(backend, DRAFTED, "branch", parent="id-0", head=False)
    save(backend, DRAFTED, "draft", keep=False)
    save(backend, S, "first", parent=None, head=False)  # the tip is not the head
    long = store_over(backend).scope(*LONG)
    for number in range(4):
        long.save({"n": number}, id=f"n-{number}")
    long.save({"text": Random(0).randbytes(_ROLLED_BYTES).hex()}, id="rolled")
    large = Random(1).randbytes(6_000).hex()
    long.save({"text": large}, id="large")
    long.fork("large", scope_id=FORK.scope_id)
    long.save({"text": large, "n": 1}, id="edited")  # a delta
    long.save({"n": "last"}, id="last")


def inspect(backend: Backend, *, repair: bool = False, limit: int = 97) -> list[Finding]:
    """Return all findings, page by page."""
    findings: list[Finding] = []
    after: str | None = ""
    while after is not None:
        found, after = backend.check(after, repair=repair, limit=limit)
        findings += found
    return findings


def codes(findings: list[Finding]) -> list[str]:
    return sorted({each.code for each in findings})


Seen = dict[tuple[ScopeKey, str], Any]


def readable(backend: Backend) -> Seen:
    """Return all that can be read by its address: snapshots with states, heads, notes."""
    found: Seen = {}
    asked: dict[ScopeKey, list[str]] = {
        **{key: [*IDS, "draft", "branch", "first"] for key in (S, OTHER, DRAFTED)},
        LONG: ["n-0", "n-1", "rolled", "large", "edited", "last"],
        FORK: [],
    }
    for scope, names in asked.items():
        for id in names:
            with suppress(Corrupt):
                for each in backend.read_snapshots(scope, [id]):
                    found[scope, id] = each
        with suppress(Corrupt):
            found[scope, "head"] = backend.read_snapshots(scope, [None])
        for on in (None, "id-1"):
            with suppress(Corrupt):
                notes = backend.list_notes(scope, on=[on], name=None, after="", limit=99)
                found |= {(scope, f"note {on} {each.name}"): each for each in notes}
    return found


def run(*statements: str) -> Damage:
    """Run statements, in which `:pk` is the scope, `:seq` the snapshot, `:empty` is `{}`."""

    def damage(tables: Tables, pk: int, seq: int) -> None:
        values = {"pk": pk, "seq": seq, "empty": b"{}", "nothing": b""}
        for statement in statements:
            used = {name: each for name, each in values.items() if f":{name}" in statement}
            tables.run(statement, **used)

    return damage


def written(scope: str, **changes: Any) -> Damage:
    """Change the row of a scope with a checksum that holds: as if Limpet had written that.

    A value may be a statement.
    """

    def damage(tables: Tables, pk: int, seq: int) -> None:
        columns = COLUMNS["scope"].replace(" ", ", ")
        asked = f"SELECT {columns} FROM scopes WHERE session_id = :name"
        (found,) = tables.run(asked, name=scope)
        for name, value in changes.items():
            if isinstance(value, str) and value.startswith("SELECT"):
                ((value,),) = tables.run(value)
            changes[name] = seq if value == ":seq" else value
        record = read_scope(found[:SCOPE_COLUMNS], PLAIN)._replace(**changes)
        names = COLUMNS["scope"].split()[4:]
        sets = ", ".join(f"{name} = :{name}" for name in names)
        values = dict(zip(names, scope_values(record, PLAIN), strict=True))
        tables.run(f"UPDATE scopes SET {sets} WHERE pk = :pk", pk=record.pk, **values)

    return damage


def another_state(encoding: int, body: bytes, base: int | None = None) -> Damage:
    """Replace the state, with a checksum that holds."""

    def damage(tables: Tables, pk: int, seq: int) -> None:
        values = tail_values(TailRow(seq, base, encoding, body), pk, S, PLAIN)
        names = COLUMNS["tail"].split()
        sets = ", ".join(f"{name} = :{name}" for name in names[1:])
        statement = f"UPDATE tails SET {sets} WHERE seq = :seq"
        tables.run(statement, **dict(zip(names, values, strict=True)))

    return damage


def another_row(**changes: Any) -> Damage:
    """Change the snapshot's row, with a checksum that holds."""

    def damage(tables: Tables, pk: int, seq: int) -> None:
        columns = COLUMNS["row"].replace(" ", ", ")
        (found,) = tables.run(f"SELECT {columns} FROM snapshots WHERE seq = :seq", seq=seq)
        row = verified_row(found[:ROW_COLUMNS])._replace(**changes)
        values = dict(zip(COLUMNS["row"].split(), row_values(row, pk, S, PLAIN), strict=True))
        sets = ", ".join(f"{name} = :{name}" for name in [*changes, "checksum"])
        used = {name: values[name] for name in [*changes, "checksum", "seq"]}
        tables.run(f"UPDATE snapshots SET {sets} WHERE seq = :seq", **used)

    return damage


class Case(NamedTuple):
    """Damage, what check finds, what a check after repair still finds, and what is out of reach."""

    damage: Damage
    found: set[str]
    left: Set[str] = frozenset()
    lost: Set[tuple[ScopeKey, str]] = frozenset()


HIT = {(S, "id-1")}
ALL_OF_S = {(S, id) for id in (*IDS, "first", "head", "note None a", "note id-1 on it")}
LAST_DRAFT = "SELECT max(seq) FROM snapshots WHERE kept = 0"


def stays(code: str, damage: Damage, lost: set[tuple[ScopeKey, str]] = HIT) -> Case:
    return Case(damage, {code}, {code}, lost)


def unreadable(damage: Damage) -> Case:
    """Of a state; as it is not counted any more, its scope is wrong as well."""
    return Case(damage, {"state_damaged", "scope_wrong"}, {"state_damaged"}, HIT)


def mended(code: str, *statements: str) -> Case:
    return Case(run(*statements), {code})


def settled(scope: str = "s", lost: Set[tuple[ScopeKey, str]] = frozenset(), **row: Any) -> Case:
    return Case(written(scope, **row), {"scope_wrong"}, lost=lost)


ORPHAN = "INSERT INTO tails (seq, encoding, body, checksum) VALUES (999, 0, :empty, 0)"

CASES = {
    # Scopes
    "head of nothing": settled(head=999, lost={(S, "head")}),
    "head of another scope": settled(
        head="SELECT max(seq) FROM snapshots WHERE id = 'id-0'", lost={(S, "head")}
    ),
    "head of nothing, with a draft": Case(
        written("drafted", head=999), {"scope_wrong", "draft_unreachable"}
    ),
    "draft without a head": Case(
        written("drafted", head=None), {"scope_wrong", "draft_unreachable"}
    ),
    "tip": settled(tip=":seq"),
    "tip gone": settled(tip=None),
    "last": settled(last=":seq"),
    "floor": settled(floor="zzz"),
    "number of notes": settled(notes=99),
    "length of the tail": settled(tail_count=1),
    "bytes of the tail": settled(tail_bytes=1),
    "session name": stays(
        "scope_damaged", run("UPDATE scopes SET session_id = '' WHERE pk = :pk"), ALL_OF_S
    ),
    "kind": stays("scope_damaged", run("UPDATE scopes SET kind = 'A!' WHERE pk = :pk"), ALL_OF_S),
    "older head and tip": Case(
        run("UPDATE scopes SET head = :seq, tip = :seq WHERE pk = :pk"),
        {"scope_damaged"},
        lost={(S, "head")},
    ),
    "scope gone": Case(run("DELETE FROM scopes WHERE pk = :pk"), {"scope_missing"}, lost=ALL_OF_S),
    "scope gone, notes alone": Case(
        run("UPDATE notes SET scope_pk = 77777 WHERE scope_pk = :pk AND name = 'a'"),
        {"scope_missing", "scope_wrong", "note_damaged"},
        {"note_damaged"},
        {(S, "note None a")},
    ),
    # Snapshots
    "facts not JSON": stays("snapshot_damaged", another_row(metadata=b"{")),
    "labels no object": stays("snapshot_damaged", another_row(labels=b"[1]")),
    "time out of range": stays("snapshot_damaged", another_row(created_at=2**62)),
    "draft not the head": stays("draft_unreachable", another_row(kept=False)),
    "directly after its parent": mended(
        "index_wrong", "UPDATE snapshots SET apart = 0 WHERE id = 'branch'"
    ),
    "label not indexed": mended("index_wrong", "DELETE FROM labels WHERE seq = :seq"),
    "label too much": mended(
        "index_wrong", "INSERT INTO labels (name, value, seq) VALUES ('n', 'v', :seq)"
    ),
    "label of nothing": mended(
        "index_wrong", "INSERT INTO labels (name, value, seq) VALUES ('n', 'v', 999)"
    ),
    # States
    "state gone": unreadable(run("DELETE FROM tails WHERE seq = :seq")),
    "state not zstd": unreadable(another_state(ZSTD, b"no zstd")),
    "state not JSON": unreadable(another_state(WHOLE, b"{")),
    "state of another size": unreadable(another_state(WHOLE, b"{}")),
    "base gone": unreadable(another_state(WHOLE, b"{}", 999)),
    "state of nothing": mended("state_left", ORPHAN),
    "state moved": Case(
        run("UPDATE tails SET seq = 999 WHERE seq = :seq"),
        {"state_damaged", "state_left", "scope_wrong"},
        {"state_damaged", "state_left"},
        HIT,
    ),
    "base without a snapshot": Case(
        run("DELETE FROM snapshots WHERE id = 'large' AND parent_id = 'rolled'"),
        {"state_left", "scope_wrong", "state_damaged"},
        {"state_left", "state_damaged"},  # what builds on it may be salvaged
        {(LONG, "large"), (LONG, "edited")},
    ),
    "part of a segment of nothing": stays(
        "state_left", run("DELETE FROM snapshots WHERE id IN ('n-1', 'n-2')"), {(LONG, "n-1")}
    ),
    "segment of nothing": Case(
        run("DELETE FROM snapshots WHERE id IN ('n-0', 'n-1', 'n-2', 'n-3', 'rolled')"),
        {"state_left"},
        lost={(LONG, "n-0"), (LONG, "n-1"), (LONG, "rolled")},
    ),
    "segment gone": stays(
        "state_damaged",
        run("DELETE FROM segments"),
        {(LONG, "n-0"), (LONG, "n-1"), (LONG, "rolled")},
    ),
    "shared state gone": stays("state_damaged", run("DELETE FROM shared"), {(FORK, "head")}),
    "shared state of a damaged one": Case(
        run("UPDATE tails SET encoding = 5 WHERE encoding = 2"),
        {"state_damaged", "state_left"},
        {"state_damaged", "state_left"},
        {(FORK, "head")},
    ),
    "damaged segment of nothing": Case(
        run(
            "UPDATE segments SET checksum = 1",
            "DELETE FROM snapshots WHERE id IN ('n-0', 'n-1', 'n-2', 'n-3', 'rolled')",
        ),
        {"state_left"},
        lost={(LONG, "n-0"), (LONG, "n-1"), (LONG, "rolled")},
    ),
    "shared state of nothing": mended(
        "state_left",
        "INSERT INTO shared (name, session_id, body, checksum) VALUES (:empty, 'x', :empty, 1)",
    ),
    # Notes
    "note not JSON": stays(
        "note_damaged",
        run("UPDATE notes SET value = :nothing WHERE scope_pk = :pk AND name = 'a'"),
        {(S, "note None a")},
    ),
}


def damage(tables: Tables, case: Case) -> None:
    ((pk, seq),) = tables.run(WHERE_IT_HITS)
    case.damage(tables, pk, seq)
    tables.close()


def check_damage(backend: Backend, case: Case, tables: Tables, before: Seen) -> None:
    """Check names damage and changes nothing; repair leaves what it cannot mend, and harms nothing.

    `before` is what could be read before the damage was done.
    """
    damaged = tables.dump()
    found = inspect(backend)
    assert codes(found) == sorted(case.found)
    check_repair(backend, tables, found, damaged, case.left)
    kept = {key: each for key, each in before.items() if key not in case.lost}
    assert not kept or readable(backend).items() >= kept.items()


def check_repair(
    backend: Backend,
    tables: Tables,
    found: list[Finding],
    damaged: list[Any],
    expected: Set[str] | None = None,
) -> None:
    assert not any(each.repaired for each in found)
    assert tables.dump() == damaged
    repaired = inspect(backend, repair=True)
    left = {each.code for each in repaired if not each.repaired}
    assert expected is None or left == expected
    if not any(each.repaired for each in repaired):
        assert tables.dump() == damaged
    after = tables.dump()
    again = inspect(backend)
    assert set(codes(again)) == left
    assert inspect(backend, repair=True) == again
    assert tables.dump() == after
    for each in [*found, *repaired]:
        assert each.severity == SEVERITIES[each.code]
        assert each.message[0].islower()
        each.message.encode()


# Every column of every table.

TABLES = {
    "scopes": [*COLUMNS["scope"].split()[4:]],
    "snapshots": [*COLUMNS["row"].split()[1:]],
    "tails": [*COLUMNS["tail"].split()[1:]],
    "segments": ["scope_pk", *COLUMNS["segment"].split()],
    "shared": ["name", "session_id", "body", "checksum"],
    "labels": ["name", "value", "seq"],
    "notes": ["scope_pk", *COLUMNS["note"].split()],
}
EVERY_COLUMN = [(table, column) for table, columns in TABLES.items() for column in columns]
_ROW = {
    "scopes": "pk = :pk",
    "snapshots": "seq = :seq",
    "tails": "seq = :seq",
    "labels": "seq = :seq",
    "notes": "scope_pk = :pk AND name = 'a'",
    "segments": "last_seq = (SELECT min(last_seq) FROM segments)",
    "shared": "checksum IS NOT NULL",
}
_NULLS: dict[str, Any] = {
    **dict.fromkeys(("head", "tip", "until", "base"), 999),
    **dict.fromkeys(("fence", "owner", "parent_id"), "somebody"),
    **dict.fromkeys(("offsets", "forked_from"), b"[1]"),
}


def other_value(column: str, value: Any) -> Any:
    """Return another value of the same type, of which more than one bit is another."""
    if value is None:
        return _NULLS[column]
    if column == "kept":
        return 1 - value
    if isinstance(value, int):
        return value ^ 6
    if isinstance(value, str):
        return f"{value}xy"
    return value[:-1] + bytes([value[-1] ^ 6])


def damage_column(tables: Tables, table: str, column: str) -> None:
    ((pk, seq),) = tables.run(WHERE_IT_HITS)
    where = _ROW[table]
    at = {name: key for name, key in (("pk", pk), ("seq", seq)) if f":{name}" in where}
    (old,), *_ = tables.run(f"SELECT {column} FROM {table} WHERE {where}", **at)
    new = other_value(column, old)
    tables.run(f"UPDATE {table} SET {column} = :new WHERE {where}", new=new, **at)
    tables.close()


def check_column(backend: Backend, tables: Tables, table: str, column: str, before: Seen) -> None:
    """Nothing wrong is read; check says so; repair mends it, or leaves it as readable as it was."""
    damage_column(tables, table, column)
    left = readable(backend)
    assert left.items() <= before.items()
    damaged, found = tables.dump(), inspect(backend)
    assert found
    check_repair(backend, tables, found, damaged)
    after = readable(backend)
    assert after.keys() >= left.keys()
    wrong = {key for key, each in after.items() if before.get(key) != each}
    # What cannot be told any more: that an older snapshot was the head.
    assert wrong <= ({(S, "head")} if table == "scopes" else set())
