"""Brings what a source yields into a store."""

from collections.abc import Callable
from typing import Any

from limpet.compat.strands.sources import Beside, Item, Source, refusal
from limpet.compat.transfer import Transfer
from limpet.core.document import FACADE
from limpet.errors import Corrupt, InvalidInput, Unsupported
from limpet.model import JSON, Finding
from limpet.store import Store


class Import:
    """One import: from several sources, if there are."""

    def __init__(
        self, target: Store, convert: Callable[[dict[str, JSON]], dict[str, JSON]]
    ) -> None:
        self._target = target
        self._convert = convert
        self._count = 0
        self._skipped: list[Finding] = []

    def take(self, source: Source) -> Transfer:
        """Save what can be saved, and return what came of all of it so far."""
        for found in source:
            if isinstance(found, Finding):
                self._skipped.append(found)
                continue
            try:
                self._save(found)
            except (InvalidInput, Unsupported, Corrupt) as cause:
                id = found.id if isinstance(found, Item) else None
                self._skipped.append(refusal("refused", cause, found.scope, id))
        return Transfer(self._count, tuple(self._skipped))

    def _save(self, found: Item | Beside) -> None:
        scope = self._target.scope(*found.scope)
        if isinstance(found, Beside):
            scope.set_note(found.name, found.value)
            return
        envelope = self._convert(found.wire)
        state = envelope.pop("data")
        facts: dict[str, Any] = {
            "metadata": {**found.metadata, FACADE: envelope},
            "created_at": found.created_at,
            "parent": found.parent,
            "status": found.status,
            "labels": found.labels,
        }
        if found.id is not None:
            scope.save(state, id=found.id, head=found.is_head, overwrite=True, **facts)
        else:
            present = scope.load()
            # So that to repeat it moves nothing.
            if not present or (present.state, present.metadata) != (state, facts["metadata"]):
                scope.save(state, keep=False, **facts)
        self._count += 1
