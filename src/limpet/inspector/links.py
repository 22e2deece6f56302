"""Addresses of pages, and the commands that do in a terminal what a page does."""

import shlex
from urllib.parse import urlencode

from limpet.model import ScopeKey, SnapshotInfo, SnapshotRef
from limpet.views.format import address_text, visible


def url(path: str, /, **params: object) -> str:
    """Return the address of a page below `/ui`; parameters that are None or "" are left out."""
    given = {name: str(value) for name, value in params.items() if value not in (None, "")}
    return f"/ui{path}?{urlencode(given)}" if given else f"/ui{path}"


def address(place: SnapshotInfo | SnapshotRef | ScopeKey) -> dict[str, str]:
    """Return the parameters that name a scope, or a snapshot in it."""
    if isinstance(place, ScopeKey):
        return {"session_id": place.session_id, "scope_id": place.scope_id, "kind": place.kind}
    return {**address(place.scope), "id": place.id}


def command(url: str, *words: str) -> str:
    """Return a command of the command line, as it is typed in a shell: `limpet log chat-42 …`."""
    options, names = list(words), []
    if "--" in words:
        at = words.index("--")
        options, names = options[:at], options[at:]
    return visible(shlex.join(["limpet", *options, "--url", url, *names]))


def names(*words: str) -> list[str]:
    """Return arguments that are no options, also if they look like some."""
    return ["--", *words] if any(word.startswith("-") for word in words) else list(words)


def snapshot_words(info: SnapshotInfo | SnapshotRef) -> list[str]:
    """Return how the command line names a snapshot."""
    kind = [] if info.scope.kind == "agent" else ["--kind", info.scope.kind]
    return [address_text(info.scope, info.id), *kind]
