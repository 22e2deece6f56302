"""The four objects of a kept save: the same keys and the same bytes as Limpet writes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import limpet
from benchmarks.material import state_of
from limpet.core import ids, layout
from limpet.core.layout import Layout
from limpet.opening import draw

SCOPE = limpet.ScopeKey("benchmark", "main")
HEAD = Layout().head_key(SCOPE)
BYTES_MAX = 8 * 1024 * 1024  # of different states in memory
STATES_MAX = 40
TRAIL_SAVES = 20  # from then on the headers of documents do not grow any more


class Keys(NamedTuple):
    """The keys of the copy of one save and of its two pointers; the key of the head is constant."""

    copy: str
    by_id: str
    by_place: str


@dataclass(frozen=True, slots=True)
class Material:
    """States, and the documents that Limpet makes of them."""

    states: Sequence[limpet.JSON]
    documents: Sequence[bytes]

    def state(self, number: int) -> limpet.JSON:
        """Return what is saved by a call."""
        return self.states[number % len(self.states)]

    def document(self, number: int) -> bytes:
        """Return the document that a call writes."""
        return self.documents[number % len(self.documents)]


@cache
def material_of(size_bytes: int) -> Material:
    """Return states of about this size, and their documents."""
    count = max(2, min(STATES_MAX, BYTES_MAX // size_bytes))
    states = [state_of(number, size_bytes=size_bytes) for number in range(count)]
    documents: dict[int, bytes] = {}
    with (
        TemporaryDirectory(prefix="limpet-bench-") as name,
        limpet.open(f"file://{name}", sync=False) as store,
    ):
        for number in range(TRAIL_SAVES + count):
            store.scope(*SCOPE).save(states[number % count])
            documents[number % count] = Path(name, HEAD).read_bytes()
    return Material(states, [documents[number] for number in range(count)])


def new_keys(count: int) -> list[Keys]:
    """Return the keys of so many saves, made beforehand."""
    made = []
    for number in range(count):
        now, nonce, bits = draw()
        ref = limpet.SnapshotRef(SCOPE, ids.mint(now, bits, ""))
        made.append(
            Keys(
                Layout().copy_key(*ref),
                layout.id_key(ref, born=nonce),
                layout.order_key(ref, seq=(now << 8) + number, born=nonce),
            )
        )
    return made
