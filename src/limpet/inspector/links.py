"""Addresses of pages, and the commands that do in a terminal what a page does."""

import shlex
from collections.abc import Sequence
from urllib.parse import urlencode

from limpet.model import ScopeKey, SnapshotInfo, SnapshotRef
from limpet.views.format import visible


def url(path: str, /, **params: object) -> str:
    """Return the address of a page below `/ui`; parameters that are None or "" are left out."""
    given = {name: str(value) for name, value in params.items() if value not in (None, "")}
    return f"/ui{path}?{urlencode(given)}" if given else f"/ui{path}"


def address(place: SnapshotInfo | SnapshotRef | ScopeKey) -> dict[str, str]:
    """Return the parameters that name a scope, or a snapshot in it."""
    if isinstance(place, ScopeKey):
        return {"session_id": place.session_id, "scope_id": place.scope_id, "kind": place.kind}
    return {**address(place.scope), "id": place.id}


def words(url: str, verb: str, *options: str, names: Sequence[str] = ()) -> list[str]:
    """Return a command of the command line, word by word; names may look like options."""
    if any(name.startswith("-") for name in names):
        return ["limpet", verb, *options, "--url", url, "--", *names]
    return ["limpet", verb, *options, *names, "--url", url]


def command(url: str, verb: str, *options: str, names: Sequence[str] = ()) -> str:
    """Return a command as it is typed in a shell: `limpet log --graph chat-42 --url …`."""
    return visible(shlex.join(words(url, verb, *options, names=names)))


def kind_option(key: ScopeKey) -> list[str]:
    return [] if key.kind == "agent" else ["--kind", key.kind]
