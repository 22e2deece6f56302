"""Addresses of pages, and the commands that do in a terminal what a page does."""

import shlex
from collections.abc import Sequence
from typing import NamedTuple
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


class Command(NamedTuple):
    """A command of the command line; its names may look like options."""

    verb: str
    options: Sequence[str] = ()
    names: Sequence[str] = ()

    def words(self, url: str) -> list[str]:
        begin = ["limpet", self.verb, *self.options]
        if any(name.startswith("-") for name in self.names):
            return [*begin, "--url", url, "--", *self.names]
        return [*begin, *self.names, "--url", url]

    def text(self, url: str) -> str:
        """Return it as it is typed in a shell: `limpet log --graph chat-42 --url …`."""
        return visible(shlex.join(self.words(url)))


def kind_option(key: ScopeKey) -> list[str]:
    return [] if key.kind == "agent" else ["--kind", key.kind]
