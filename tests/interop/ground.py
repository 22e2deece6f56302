"""Storage on which the Strands SDK and Limpet work side by side."""

from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import limpet
from limpet.api.store import Store
from limpet.model import ScopeKey
from tests.interop.places import Files, Folder, Objects, Place
from tests.interop.sdk import Sdk, Theirs


class Layout(NamedTuple):
    """Where sessions stand, and which of the SDK's storages puts them there.

    The classic storages write below their folder or prefix; `below` is what they are given more.
    The unified ones write below `session/`, or below a namespace.
    """

    root: str
    family: str
    below: str = ""
    namespace: str = ""


LAYOUTS = {
    "ours": Layout("sessions/", "classic", below="sessions"),
    "classic": Layout("", "classic"),
    "unified": Layout("session/", "unified"),
}
NAMED = Layout("sessions/", "unified", namespace="sessions")


class Ground:
    """One address that both sides know. `files` shows what is really there."""

    def __init__(self, sdk: Sdk, layout: Layout, at: Place) -> None:
        self.layout = layout
        self._sdk = sdk
        self._spec: dict[str, Any] = {"family": layout.family, "namespace": layout.namespace}
        self.files: Files
        self._secrets: dict[str, Any] = {}
        options = {"root": layout.root}
        if isinstance(at, Path):
            self.files = Folder(at)
            self._spec["folder"] = str(at / layout.below)
            address = f"file://{quote(str(at))}"
        else:
            self.files = Objects(at)
            self._secrets = dict(at.service.options)
            options["endpoint_url"] = self._secrets.pop("endpoint_url")
            options["region"] = self._secrets.pop("region")
            self._spec["s3"] = {
                "endpoint": options["endpoint_url"],
                "region": options["region"],
                "bucket": at.service.name,
                "prefix": "/".join(filter(None, (at.prefix, layout.below))),
                "accessKeyId": at.service.access_key_id,
                "secretAccessKey": at.service.secret_access_key,
            }
            address = f"s3://{at.service.name}/{at.prefix}"
        self.url = f"{address}?{urlencode(options)}"

    def open(self) -> Store:
        return limpet.open(self.url, **self._secrets)

    def theirs(self, session_id: str, scope_id: str = "main", kind: str = "agent") -> Theirs:
        """Return a scope as the SDK sees it."""
        return Theirs(self._sdk, self._spec, ScopeKey(session_id, scope_id, kind))

    def documents(self, session_id: str) -> list[str]:
        """Return the keys of a session as they stand below the root."""
        start = f"{self.layout.root}{session_id}/"
        found = (key for key in self.files.list_keys() if key.startswith(start))
        return [key.removeprefix(start) for key in found]
