"""Sessions from the files of the Strands tools, and back into such files.

Synchronous, for either face of a store; from async code `await store.run(lambda store: …)`. What is
there already is replaced, so that both may be repeated. What cannot be carried over is told, and
does not stop the rest.

| layout     | files below the folder or prefix                    | written by                   |
|------------|-----------------------------------------------------|------------------------------|
| `classic`  | `<session>/scopes/<scope>/<id>/snapshots/…`         | TypeScript's SnapshotStorage |
| `unified`  | `session/<session>/scopes/<scope>/<id>/snapshots/…` | both SDKs' Storage           |
| `messages` | `session_<session>/agents/agent_<id>/messages/…`    | Python's older managers      |
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from holdfast import opening
from holdfast.aio import AsyncStore
from holdfast.compat.strands import messages
from holdfast.compat.strands.payloads import dialect_of, to_python, to_typescript
from holdfast.compat.strands.records import SCOPES, is_identifier
from holdfast.compat.strands.storage import MANIFEST, is_gone, moment_of, wire_of
from holdfast.compat.transfer import Transfer
from holdfast.core.document import FACADE
from holdfast.errors import Corrupt, InvalidInput, NotFound, Unsupported
from holdfast.model import ANY, HEAD, JSON, Finding, Parent, ScopeKey, Snapshot
from holdfast.scope import Scope
from holdfast.store import Store

if TYPE_CHECKING:
    from holdfast.backends._bucket.protocol import Bucket

Layout = Literal["classic", "unified", "messages"]
Payload = Literal["typescript", "python"]

_ROOTS = {"classic": "", "unified": "session/"}
_Converter: TypeAlias = Callable[[dict[str, JSON]], dict[str, JSON]]
_CONVERTERS: Mapping[object, _Converter] = {"python": to_python, "typescript": to_typescript}


def import_sessions(
    store: Store | AsyncStore,
    source: str | os.PathLike[str],
    *,
    layout: Layout = "classic",
    payload: Payload | None = None,
    prefix: str = "",
    **options: Any,
) -> Transfer:
    """Bring the sessions whose names begin with `prefix` into a store; count the snapshots.

    `source` is a folder, or the URL of a bucket with its options. With `payload` the snapshots are
    turned into those of one SDK; otherwise they are kept as they are.

    Raises:
        InvalidInput: the source, the layout or the payload is not understood.
        NotFound: there is no such folder.
    """
    url, convert = _url(source), _converter(payload)
    folder = opening.file_of(url)
    if folder is not None and not os.path.isdir(folder):
        raise NotFound(f"there is no such folder. path=`{folder}`")
    if layout == "messages":
        found = messages.read(opening.open_files(url, **options), prefix=prefix)
        return _Import(store.sync, convert).messages(found)
    with opening.open(url, root=_root(layout), **options) as origin:
        return _Import(store.sync, convert).sessions(origin, prefix)


def export_sessions(
    store: Store | AsyncStore,
    to: str | os.PathLike[str],
    *,
    layout: Layout = "classic",
    payload: Payload | None = None,
    prefix: str = "",
    **options: Any,
) -> Transfer:
    """Write the sessions whose names begin with `prefix` as files of the Strands tools.

    They are the very files that the SDKs write, with nothing of ours in them. Sessions, scopes and
    snapshots whose names the SDK of the payload would refuse are left out, and told.

    Raises:
        InvalidInput: the target, the layout or the payload is not understood, or is `messages`.
    """
    _root(layout)
    files = opening.open_files(_url(to), **options)
    try:
        return _Export(files, layout, _converter(payload)).sessions(store.sync, prefix)
    finally:
        files.close()


class _Report:
    """What came of it so far."""

    def __init__(self) -> None:
        self._count = 0
        self._skipped: list[Finding] = []

    def count(self) -> None:
        self._count += 1

    def skip(self, finding: Finding) -> None:
        self._skipped.append(finding)

    def refuse(self, code: str, cause: object, scope: ScopeKey, id: str | None = None) -> None:
        self.skip(Finding("error", code, str(cause), scope, id))

    def done(self) -> Transfer:
        return Transfer(self._count, tuple(self._skipped))


def _lines(store: Store, prefix: str) -> Iterator[Scope]:
    """Yield the scopes that Strands has a place for."""
    for info in store.scopes(prefix=prefix):
        if info.key.kind in SCOPES:
            yield store.scope(*info.key)


def _is_below(scope: ScopeKey | None, prefix: str) -> bool:
    return scope is None or (scope.kind in SCOPES and scope.session_id.startswith(prefix))


def _snapshots(
    scope: Scope, report: _Report | None = None
) -> Iterator[tuple[str | None, Snapshot]]:
    """Yield what is in history, in the order of the ids, and last, without an id, the latest.

    One at a time, so that damage to one does not hide the others.
    """
    for id in chain(scope.ids(), (None,)):
        try:
            found = scope.load(id)
        except Corrupt as cause:
            if report is not None:
                report.refuse("corrupt", cause, scope.key, id)
            continue
        if found is not None and not is_gone(found):
            yield id, found


class _Import:
    def __init__(self, target: Store, convert: _Converter) -> None:
        self._target = target
        self._convert = convert
        self._report = _Report()
        # Where nothing is indexed, to find the newest one would be to read all of them.
        indexed = "index" in target._engine.backend.capabilities
        self._parent: Parent = HEAD if indexed else None

    def sessions(self, origin: Store, prefix: str) -> Transfer:
        # Asked for all, since a damaged file that is small enough is not even listed.
        for finding in origin.check():
            if finding.severity == "error" and _is_below(finding.scope, prefix):
                self._report.skip(finding)
        for scope in _lines(origin, prefix):
            shown = _shown(scope)
            for id, found in _snapshots(scope):
                if id is not None:
                    self._keep(found, is_head=id == shown)
                elif not found.kept:
                    self._lead(found.scope, wire_of(found))
            there = self._target.scope(*scope.key)
            for note in scope.notes():
                there.set_note(note.name, note.value)
        return self._report.done()

    def messages(self, found: Iterator[tuple[ScopeKey, dict[str, JSON] | Corrupt]]) -> Transfer:
        for scope, wire in found:
            if isinstance(wire, Corrupt):
                self._report.refuse("corrupt", wire, scope)
            else:
                self._lead(scope, wire)
        return self._report.done()

    def _keep(self, found: Snapshot, *, is_head: bool) -> None:
        facts = self._facts(found.scope, wire_of(found), found.id)
        if facts is not None:
            parent = self._parent if found.parent_id is None else found.parent_id
            self._target.scope(*found.scope).save(
                **{**facts, "metadata": {**found.metadata, **facts["metadata"]}},
                id=found.id,
                head=is_head,
                overwrite=True,
                parent=parent,
                status=found.status,
                labels=found.labels,
            )
            self._report.count()

    def _lead(self, scope: ScopeKey, wire: dict[str, JSON]) -> None:
        facts = self._facts(scope, wire)
        if facts is not None:
            there = self._target.scope(*scope)
            present = there.load()
            same = present and (present.state, present.metadata.get(FACADE)) == (
                facts["state"],
                facts["metadata"][FACADE],
            )
            if not same:  # so that to repeat it moves nothing
                there.save(**facts, keep=False, parent=self._parent)
            self._report.count()

    def _facts(
        self, scope: ScopeKey, wire: dict[str, JSON], id: str | None = None
    ) -> dict[str, Any] | None:
        try:
            envelope = self._convert(wire)
        except (InvalidInput, Unsupported) as cause:
            self._report.refuse("payload", cause, scope, id)
            return None
        state = envelope.pop("data")
        return {
            "state": state,
            "metadata": {FACADE: envelope},
            "created_at": moment_of(envelope),
        }


def _shown(scope: Scope) -> str | None:
    """Return the id of the head, unless it is damaged, which is told elsewhere."""
    try:
        info = scope.info()
    except Corrupt:
        return None
    return None if info is None else info.id


class _Export:
    def __init__(self, files: "Bucket", layout: Layout, convert: _Converter) -> None:
        self._files = files
        self._layout = layout
        self._convert = convert
        self._report = _Report()

    def sessions(self, origin: Store, prefix: str) -> Transfer:
        for scope in _lines(origin, prefix):
            for id, found in _snapshots(scope, self._report):
                self._write(scope.key, id, found)
            note = scope.note(MANIFEST)
            if note is not None and is_identifier(scope.session_id + scope.scope_id):
                stored = _text(note.value, **_FORMS[self._layout])
                self._files.put(self._key(scope.key, MANIFEST), stored, expect=ANY)
        return self._report.done()

    def _write(self, scope: ScopeKey, id: str | None, found: Snapshot) -> None:
        try:
            wire = self._convert(wire_of(found))
        except (InvalidInput, Unsupported) as cause:
            self._report.refuse("payload", cause, scope, id)
            return
        is_python = dialect_of(wire) == "python"
        fits = _is_file_name if is_python else is_identifier
        for name in (scope.session_id, scope.scope_id, id):
            if name is not None and not fits(name):
                self._report.refuse(
                    "name", f"the SDK would refuse the name. name=`{name!a}`", scope
                )
                return
        place = "snapshot_latest" if id is None else f"immutable_history/snapshot_{id}"
        form = _PYTHON if is_python else _FORMS[self._layout]
        self._files.put(self._key(scope, place), _text(wire, **form), expect=ANY)
        self._report.count()

    def _key(self, scope: ScopeKey, place: str) -> str:
        root = _ROOTS[self._layout]
        return (
            f"{root}{scope.session_id}/scopes/{scope.kind}/{scope.scope_id}/snapshots/{place}.json"
        )


# As the SDKs write them: Python's always in one way, TypeScript's two storages in two.
_PYTHON: Mapping[str, Any] = {}
_FORMS: Mapping[str, Mapping[str, Any]] = {
    "classic": {"indent": 2},
    "unified": {"separators": (",", ":")},
}


def _text(value: JSON, **form: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, **form).encode()


def _is_file_name(name: str) -> bool:
    return name not in (".", "..") and not any(mark in name for mark in "/\\\0")


def _url(place: str | os.PathLike[str]) -> str:
    if isinstance(place, str) and "://" in place:
        return place
    try:
        return f"/{os.path.abspath(os.fspath(place)).lstrip('/')}"
    except (TypeError, ValueError, AttributeError) as cause:
        raise InvalidInput("the place must be a folder or the URL of a bucket") from cause


def _root(layout: object) -> str:
    if layout not in _ROOTS:
        known = ", ".join(_ROOTS)
        raise InvalidInput(f"there is no such layout here. layout=`{layout!a}` known=`{known}`")
    return _ROOTS[layout]


def _converter(payload: object) -> _Converter:
    if payload is None:
        return lambda wire: wire
    if payload not in _CONVERTERS:
        raise InvalidInput(f"a payload is typescript or python. payload=`{payload!a}`")
    return _CONVERTERS[payload]
