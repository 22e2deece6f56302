"""A store in tables to be damaged, and what check and repair owe it, on either engine over SQL."""

from collections.abc import Callable, Set
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

from limpet.backends.sql.findings import SEVERITIES
from limpet.errors import Corrupt
from limpet.model import Finding, ScopeKey
from limpet.opening import draw
from limpet.protocol import Backend, Commit, Found, NoteWrite

Damage = Callable[[Any, int, int], None]
"""Takes a connection, and the keys of a scope and of a snapshot."""

Harm = Callable[[str], None]
"""Does the damage of a case, by its name."""

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
    def damage(conn: Any, pk: int, seq: int) -> None:
        for statement in statements:
            conn.execute(statement, {"pk": pk, "seq": seq})

    return damage


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


def check_damage(
    backend: Backend,
    case: Case,
    dump: Callable[[], list[Any]],
    before: dict[tuple[ScopeKey, str], Found],
) -> list[Finding]:
    """Check names damage and changes nothing; repair leaves what it cannot mend, and harms nothing.

    `before` is what could be read before the damage was done. Return all findings.
    """
    damaged = dump()
    found = inspect(backend)
    assert codes(found) == sorted(case.found)
    assert not any(each.repaired for each in found)
    assert dump() == damaged

    repaired = inspect(backend, repair=True)
    assert set(codes(repaired)) <= case.found
    assert {each.code for each in repaired if not each.repaired} == case.left
    if not any(each.repaired for each in repaired):
        assert dump() == damaged

    after = dump()
    left = inspect(backend)
    assert codes(left) == sorted(case.left)
    assert inspect(backend, repair=True) == left
    assert dump() == after
    kept = {key: each for key, each in before.items() if key not in case.lost}
    assert not kept or readable(backend).items() >= kept.items()
    for each in [*found, *repaired]:
        assert each.severity == SEVERITIES[each.code]
        assert each.message[0].islower()
    return [*found, *repaired]


class Repairs:
    """What is lost is found again. Wants the fixtures `backend` and `harm`."""

    def test_a_lost_head_is_the_draft_if_there_is_one(self, backend: Backend, harm: Harm) -> None:
        for name in ("head of nothing, with a draft", "head of nothing"):
            harm(name)
        inspect(backend, repair=True)

        heads = [backend.read_info(scope, None) for scope in (DRAFTED, S)]
        assert [head and head.id for head in heads] == ["draft", "first"]

    def test_a_lost_scope_is_found_again(self, backend: Backend, harm: Harm) -> None:
        """With all that belonged to it, under a name that says so."""
        before = backend.read_snapshots(S, IDS)
        notes = backend.list_notes(S, on=[None, *IDS], name=None, after="", limit=99)
        minted = save(backend, S, None)
        harm("scope gone")
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

    def test_a_lost_session_is_found_again(self, backend: Backend, harm: Harm) -> None:
        before = backend.read_snapshots(S, IDS)
        harm("session gone")
        (found,) = inspect(backend, repair=True)

        assert found.scope is not None
        assert found.scope.session_id.startswith("lost+found/")
        assert found.scope[1:] == S[1:]
        states = backend.read_snapshots(found.scope, IDS)
        assert [body for _, body in states] == [body for _, body in before]
