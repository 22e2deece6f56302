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

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from limpet import opening
from limpet.aio import AsyncStore
from limpet.compat.place import address_of
from limpet.compat.strands import messages, sources
from limpet.compat.strands.exporting import Export
from limpet.compat.strands.importing import Import
from limpet.compat.strands.payloads import to_python, to_typescript
from limpet.compat.transfer import Transfer
from limpet.errors import InvalidInput, NotFound
from limpet.model import JSON
from limpet.store import Store

Layout: TypeAlias = Literal["classic", "unified", "messages"]
Payload: TypeAlias = Literal["typescript", "python"]

_ROOTS = {"classic": "", "unified": "session/"}
_Converter: TypeAlias = Callable[[dict[str, JSON]], dict[str, JSON]]
_CONVERTERS: Mapping[str, _Converter] = {"python": to_python, "typescript": to_typescript}


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
    turned into those of one SDK; otherwise they are kept as they are. History comes in the order of
    the ids; if none of it has a parent, each follows the one before it.

    Raises:
        InvalidInput: the source, the layout or the payload is not understood.
        NotFound: there is no such folder.
    """
    root, convert = _root(layout, ("messages",)), _converter(payload)
    target = _sync(store)
    url, folder = _address(source, options)
    folder = folder or opening.file_of(url)
    if folder is not None and not os.path.isdir(folder):
        raise NotFound(f"there is no such folder. path=`{folder}`")
    files = opening.open_files(url, **options)
    try:
        importer = Import(target, convert)
        if layout == "messages":
            return importer.take(messages.read(files, prefix))
        with opening.open(url, root=root, **options) as origin:
            importer.take(sources.stored(origin, prefix))
        return importer.take(sources.strange(files, root, prefix))
    finally:
        files.close()


def find_layout(source: str | os.PathLike[str], **options: Any) -> Layout:
    """Look at a folder or bucket and tell in which layout its sessions are; `classic` if in none.

    Raises:
        InvalidInput: the source is not understood.
    """
    url, _ = _address(source, options)
    files = opening.open_files(url, **options)
    try:
        # A session of the classic layout may be called `session`, or begin so.
        if any("/scopes/" not in each.key for each in files.list("session_", limit=1)):
            return "messages"
        listed = files.list("session/", limit=1)
        unified = any(not each.key.startswith("session/scopes/") for each in listed)
        return "unified" if unified else "classic"
    finally:
        files.close()


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
    root, convert = _root(layout), _converter(payload)
    origin = _sync(store)
    url, _ = _address(to, options)
    files = opening.open_files(url, **options)
    try:
        return Export(files, root, convert, indent=layout == "classic").sessions(origin, prefix)
    finally:
        files.close()


def _sync(store: object) -> Store:
    if not isinstance(store, Store | AsyncStore):
        raise InvalidInput(f"sessions need a store. type=`{type(store).__name__}`")
    return store.sync


def _address(place: object, options: Mapping[str, Any]) -> tuple[str, str | None]:
    if "root" in options:
        raise InvalidInput("the layout says where sessions are: there is no root")
    return address_of(place)


def _root(layout: object, others: tuple[str, ...] = ()) -> str:
    known = (*_ROOTS, *others)
    if not isinstance(layout, str) or layout not in known:
        raise InvalidInput(f"there is no such layout here. known=`{', '.join(known)}`")
    return _ROOTS.get(layout, "")


def _converter(payload: object) -> _Converter:
    if payload is None:
        return lambda wire: wire
    if not isinstance(payload, str) or payload not in _CONVERTERS:
        raise InvalidInput(f"there is no such payload. known=`{', '.join(_CONVERTERS)}`")
    return _CONVERTERS[payload]
