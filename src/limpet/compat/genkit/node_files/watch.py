"""Polls the file of a snapshot, from a task of its own."""

import asyncio
from collections.abc import Callable
from typing import Any

from limpet.compat.genkit import rules
from limpet.compat.genkit.node_files.folder import FileRow, TenantFolder
from limpet.compat.genkit.watching import CallbackTask
from limpet.errors import LimpetError
from limpet.opening import draw


class FileSubscription(CallbackTask):
    def __init__(
        self, folder: TenantFolder, id: str, callback: Callable[[Any], object], *, poll_s: float
    ) -> None:
        self._folder = folder
        self._poll_s = poll_s
        self._fingerprint: str | None = None
        self._version: str | None = None
        super().__init__(id, callback)

    async def _run(self) -> None:
        while True:
            found = await asyncio.to_thread(self._read_changed)
            if found is not None and found.version != self._version and not self._ended:
                self._version = found.version
                await self._report(rules.as_read(found.row, draw().now))
            if self._ended:
                return
            await asyncio.sleep(self._poll_s)

    def _read_changed(self) -> FileRow | None:
        try:
            fingerprint = self._folder.fingerprint(self._id)
            if fingerprint is None or fingerprint == self._fingerprint:
                return None
            found = self._folder.read(self._id)
        except LimpetError:
            return None  # the next poll tries again, and `check` reports damage
        self._fingerprint = fingerprint
        return found
