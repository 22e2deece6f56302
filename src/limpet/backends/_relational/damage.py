"""What of a scope is so damaged that listings leave it out."""

from typing import Any, NamedTuple

from limpet.backends._relational.findings import finding, id_or_none
from limpet.backends._relational.tables import Tables, verified, verified_note
from limpet.core.ids import SEQ_MAX
from limpet.core.notes import note_of
from limpet.core.rows import info_of
from limpet.errors import Corrupt
from limpet.model import Finding, ScopeKey

_PAGE = 1000


class _Looked(NamedTuple):
    """Where a row stands, and what is wrong with it."""

    place: Any
    damage: Finding | None


def damage_of(tables: Tables, key: ScopeKey) -> list[Finding]:
    """Return a finding for each snapshot and each note whose row fails its check."""
    scope = tables.scope(key)
    if scope is None:
        return []
    return [*_snapshots(tables, key, scope.pk), *_notes(tables, key, scope.pk)]


def _snapshots(tables: Tables, key: ScopeKey, pk: int) -> list[Finding]:
    def look(found: Any) -> _Looked:
        try:
            info_of(key, verified(found, pk))
        except Corrupt:
            fact = "a snapshot fails its check"
            id = id_or_none(found[1])
            return _Looked(found[0], finding("snapshot_damaged", fact, scope=key, id=id))
        return _Looked(found[0], None)

    facts = {"status": None, "id": None, "leaves": False, "labels": "{}", **key._asdict()}
    damaged: list[Finding] = []
    before = SEQ_MAX
    while True:
        values = {**facts, "pk": pk, "before": before}
        page = tables.turn.page("history_of_scope", values, look, _PAGE)
        damaged += [each.damage for each in page if each.damage is not None]
        if len(page) < _PAGE:
            return damaged
        before = page[-1].place


def _id(on: Any) -> str | None:
    return id_or_none(on) or None  # one of the scope stands on no id


def _notes(tables: Tables, key: ScopeKey, pk: int) -> list[Finding]:
    def look(found: Any) -> _Looked:
        on, name = found[:2]
        try:
            note_of(verified_note(found, pk))
        except Corrupt:
            told = finding(
                "note_damaged", "a note fails its check", scope=key, id=_id(on), name=name
            )
            return _Looked((on, name), told)
        return _Looked((on, name), None)

    damaged: list[Finding] = []
    on, after = "", ""
    while True:
        page = tables.turn.page("all_notes", {"pk": pk, "on": on, "after": after}, look, _PAGE)
        damaged += [each.damage for each in page if each.damage is not None]
        if len(page) < _PAGE:
            return damaged
        on, after = page[-1].place
