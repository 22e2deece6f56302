"""Genkit in a Node process, as tests speak to it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.interop.process import NodeProcess

PROJECT = Path(__file__).parent
DRIVER = PROJECT / "driver.mjs"


class GenkitError(Exception):
    """What Genkit threw: the class, its status if it has one, and the message."""

    def __init__(self, name: str, status: str | None, message: str) -> None:
        super().__init__(message)
        self.name, self.status = name, status


class Peer(NodeProcess):
    """Genkit in a Node process."""

    def __init__(self, packages: Path) -> None:
        super().__init__(DRIVER, packages, GenkitError)


class Theirs:
    """A folder, as the `FileSessionStore` of JavaScript sees it. Its tenants are who signed in.

    Or, given its URL, a server of ours, as the `SessionStore` of the client for JavaScript sees it.
    """

    def __init__(self, peer: Peer, where: Path | str, **options: Any) -> None:
        self.peer = peer
        kind = "folder" if isinstance(where, Path) else "url"
        self.spec = {kind: str(where), "options": options}

    def ask(self, verb: str, *, tenant: str | None = None, **parameters: Any) -> Any:
        context = {} if tenant is None else {"context": {"auth": {"uid": tenant}}}
        return self.peer.ask(verb, self.spec, {**parameters, **context})

    def get(self, id: str, *, tenant: str | None = None) -> Any:
        return self.ask("get", snapshotId=id, tenant=tenant)

    def latest(self, session_id: str, *, tenant: str | None = None) -> Any:
        """Return the id of the latest snapshot of a session."""
        found = self.ask("get", sessionId=session_id, tenant=tenant)
        return None if found is None else found["snapshotId"]

    def save(self, wire: Mapping[str, Any], *, tenant: str | None = None) -> None:
        given = wire["snapshotId"]
        assert self.ask("save", snapshotId=given, snapshot=wire, tenant=tenant) == given
