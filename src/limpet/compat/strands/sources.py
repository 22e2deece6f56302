"""What an import brings: snapshots and notes, from wherever they are, or what is wrong with one."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, groupby
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from limpet.backends._objects.files import walk
from limpet.compat.strands.records import SCOPES
from limpet.compat.strands.storage import MANIFEST, is_gone, moment_of, wire_of
from limpet.core import codec, document
from limpet.core.layout import Layout
from limpet.errors import Corrupt, InvalidInput, LimpetError
from limpet.model import JSON, Finding, ScopeKey, Snapshot
from limpet.scope import Scope
from limpet.store import Store

if TYPE_CHECKING:
    from limpet.backends._bucket.protocol import Bucket

_PLACE = re.compile(
    r"(?P<session>[^/]+)/scopes/(?P<kind>[^/]+)/(?P<scope>[^/]+)/snapshots/"
    r"(?:(?P<latest>snapshot_latest)|(?P<manifest>manifest)"
    r"|immutable_history/snapshot_(?P<id>[^/]+))\.json"
)


@dataclass(frozen=True)
class Item:
    """A snapshot to be saved: in history under its id, or without one as the latest."""

    scope: ScopeKey
    id: str | None
    wire: dict[str, JSON]
    created_at: datetime | None
    parent: str | None = None
    is_head: bool = False
    status: str = "completed"
    labels: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, JSON] = field(default_factory=dict)


class Beside(NamedTuple):
    """A note of a scope."""

    scope: ScopeKey
    name: str
    value: JSON


Source: TypeAlias = Iterator[Item | Beside | Finding]


def lines(store: Store, prefix: str) -> Iterator[Scope]:
    """Yield the scopes that Strands has a place for."""
    for info in store.scopes(prefix=prefix):
        if info.key.kind in SCOPES:
            yield store.scope(*info.key)


def snapshots(scope: Scope) -> Iterator[tuple[str | None, Snapshot | Corrupt]]:
    """Yield what is in history, in the order of the ids, and last, without an id, the latest.

    One at a time, so that damage to one does not hide the others.
    """
    for id in chain(scope.ids(), (None,)):
        try:
            found = scope.load(id)
        except Corrupt as damage:
            yield id, damage
            continue
        if found is not None and not is_gone(found):
            yield id, found


def refusal(code: str, cause: object, scope: ScopeKey, id: str | None = None) -> Finding:
    """Return what is told of something that cannot be carried over."""
    return Finding("error", code, str(cause), scope, id)


def stored(origin: Store, prefix: str) -> Source:
    """Yield what a store over the files sees."""
    # Asked for all, since a damaged file that is small enough is not even listed.
    for finding in origin.check():
        if finding.severity == "error" and _is_below(finding.scope, prefix):
            yield finding
    for scope in lines(origin, prefix):
        yield from _line(scope)
        for note in scope.notes():
            yield Beside(scope.key, note.name, note.value)


def _is_below(scope: ScopeKey | None, prefix: str) -> bool:
    if scope is None:
        return not prefix
    return scope.kind in SCOPES and scope.session_id.startswith(prefix)


def _line(scope: Scope) -> Iterator[Item]:
    bare = all(info.parent_id is None for info in scope.history())
    shown, before = _shown(scope), None
    for id, found in snapshots(scope):
        if isinstance(found, Corrupt):
            continue  # told already
        if id is None and found.kept:
            continue  # it came in its place
        yield Item(
            scope.key,
            id,
            wire_of(found),
            found.created_at,
            parent=before if bare else found.parent_id,
            is_head=id is not None and id == shown,
            status=found.status,
            labels=found.labels,
            metadata=found.metadata,
        )
        before = id


def _shown(scope: Scope) -> str | None:
    """Return the id of the head, unless it is damaged, which is told elsewhere."""
    try:
        info = scope.info()
    except Corrupt:
        return None
    return None if info is None else info.id


def strange(files: "Bucket", root: str, prefix: str) -> Source:
    """Yield what the SDKs wrote under names that are not those of our own files.

    The one for Python takes nearly any name for a session or an agent, and writes it as it is.
    """
    layout = Layout(root)
    keys = (each.key for each in walk(files, f"{root}{prefix}"))
    places = (_PLACE.fullmatch(key, len(root)) for key in keys if layout.parse(key) is None)
    for scope, group in groupby(filter(None, places), key=_scope_of):
        before: str | None = None
        for place in group:
            try:
                yield _read(files, scope, place, before)
            except LimpetError as cause:
                yield refusal("corrupt", cause, scope, place["id"])
            before = place["id"] or before


def _scope_of(place: re.Match[str]) -> ScopeKey:
    return ScopeKey(place["session"], place["scope"], place["kind"])


def _read(
    files: "Bucket", scope: ScopeKey, place: re.Match[str], before: str | None
) -> Item | Beside:
    (stored,) = files.get([place.string])
    if scope.kind not in SCOPES:
        raise InvalidInput(f"a scope is agent or multiAgent. key=`{place.string!a}`")
    if stored is None:
        raise Corrupt(f"the file is gone. key=`{place.string!a}`")
    if place["manifest"]:
        return Beside(scope, MANIFEST, codec.decode(b" " + stored.data))
    found = document.read(stored.data)
    if found.header is not None:
        raise Corrupt(f"a document stands in the place of another. key=`{place.string!a}`")
    wire = {**found.envelope, "data": codec.decode(found.body)}
    return Item(scope, place["id"], wire, moment_of(found.envelope), parent=before)
