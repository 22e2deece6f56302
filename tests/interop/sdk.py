"""The Strands SDK in a Node process, as tests speak to it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from limpet.model import JSON, ScopeKey
from tests.interop.process import NodeProcess

DRIVER = Path(__file__).parent / "strands" / "driver.mjs"


class SdkError(Exception):
    """What the SDK threw: the class, the message, and the cause if it had one."""

    def __init__(self, name: str, message: str, cause: str | None) -> None:
        super().__init__(message)
        self.name, self.message, self.cause = name, message, cause


class Sdk(NodeProcess):
    """The Strands SDK in a Node process."""

    def __init__(self, packages: Path) -> None:
        super().__init__(DRIVER, packages, SdkError)


def snapshot(data: JSON, *, scope: str = "agent", second: int = 0) -> dict[str, JSON]:
    """Return a snapshot as the SDK makes it, taken in that second of an hour."""
    return {
        "scope": scope,
        "schemaVersion": "1.0",
        "createdAt": f"2026-03-01T12:{second // 60:02d}:{second % 60:02d}.250Z",
        "data": data,
        "appData": {},
    }


def uuid7(number: int) -> str:
    """Return a UUIDv7 that sorts by its number."""
    return f"019caf00-{number:04x}-7000-8000-{number:012x}"


class Side:
    """One scope, as one of both sides sees it."""

    kind: str

    def put(self, id: str | None, taken: JSON) -> None:
        """Save whatever is given: under an id, or as the latest."""
        raise NotImplementedError

    def save_latest(self, data: JSON, *, second: int = 0) -> dict[str, JSON]:
        taken = snapshot(data, scope=self.kind, second=second)
        self.put(None, taken)
        return taken

    def save(self, id: str, data: JSON, *, second: int = 0) -> dict[str, JSON]:
        taken = snapshot(data, scope=self.kind, second=second)
        self.put(id, taken)
        return taken


class Theirs(Side):
    """One scope, as the SDK sees it."""

    def __init__(self, sdk: Sdk, spec: Mapping[str, Any], scope: ScopeKey) -> None:
        self._sdk, self._spec, self.scope, self.kind = sdk, spec, scope, scope.kind
        self.location = {
            "sessionId": scope.session_id,
            "scope": scope.kind,
            "scopeId": scope.scope_id,
        }

    def ask(self, verb: str, **parameters: JSON) -> JSON:
        return self._sdk.ask(verb, self._spec, parameters)

    def put(self, id: str | None, taken: JSON) -> None:
        self.ask(
            "saveSnapshot",
            location=self.location,
            snapshotId=id or "latest",
            isLatest=id is None,
            snapshot=taken,
        )

    def load(self, id: str | None = None) -> JSON:
        """Return a whole snapshot, the latest without an id; None if there is none."""
        named = {} if id is None else {"snapshotId": id}
        return self.ask("loadSnapshot", location=self.location, **named)

    def ids(self, *, limit: int | None = None, after: str | None = None) -> Sequence[str]:
        bounds = {"limit": limit, "startAfter": after}
        given = {name: value for name, value in bounds.items() if value is not None}
        found: list[str] = self.ask("listSnapshotIds", location=self.location, **given)
        return found

    def manifest(self) -> JSON:
        return self.ask("loadManifest", location=self.location)

    def save_manifest(self, manifest: JSON) -> None:
        self.ask("saveManifest", location=self.location, manifest=manifest)

    def delete_session(self) -> None:
        self.ask("deleteSession", sessionId=self.scope.session_id)

    def restore(self, id: str | None = None) -> JSON:
        """Return what a new agent knows after a restore; None if there was nothing to restore."""
        named = {} if id is None else {"snapshotId": id}
        return self.ask(
            "restore", sessionId=self.scope.session_id, agentId=self.scope.scope_id, **named
        )

    def converse(self, *prompts: str, history: bool = False, app_state: JSON = None) -> JSON:
        """Run an agent with these prompts and return what it then knows."""
        return self.ask(
            "converse",
            sessionId=self.scope.session_id,
            agentId=self.scope.scope_id,
            prompts=prompts,
            history=history,
            appState=app_state or {},
        )
