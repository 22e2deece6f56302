"""Genkit in a Node process, as tests speak to it."""

import json
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.interop.node import Runtime

PROJECT = Path(__file__).parent
DRIVER = PROJECT / "driver.mjs"


class GenkitError(Exception):
    """What Genkit threw: the class, its status if it has one, and the message."""

    def __init__(self, name: str, status: str | None, message: str) -> None:
        super().__init__(message)
        self.name, self.status = name, status


class Peer:
    """One Node process. It answers requests in the order in which they are asked."""

    def __init__(self, runtime: Runtime, packages: Path) -> None:
        self._process = subprocess.Popen(
            [runtime.node, "--no-warnings", str(DRIVER), str(packages)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        assert self.hear() == "ready"

    def ask(self, verb: str, spec: Mapping[str, Any], parameters: Mapping[str, Any]) -> Any:
        self.send(verb, spec, parameters)
        return self.hear()

    def send(self, verb: str, spec: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
        """Ask something, and leave it to the caller to `hear` the answer."""
        assert self._process.stdin is not None
        request = {"do": verb, "on": spec, "with": parameters}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.endswith("\n"), f"node ended early: {self._process.poll()}"
        answer = json.loads(line)
        if "error" in answer:
            raise GenkitError(**answer["error"])
        return answer["value"]

    def end(self) -> None:
        """Close its input, which ends it, and wait."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):  # it may be gone already
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class Theirs:
    """A folder, as the `FileSessionStore` of JavaScript sees it. Its tenants are who signed in."""

    def __init__(self, peer: Peer, folder: Path, **options: Any) -> None:
        self.peer = peer
        self.spec = {"folder": str(folder), "options": options}

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
