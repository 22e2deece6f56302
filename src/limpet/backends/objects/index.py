"""The index: objects whose keys say in which scope a snapshot is.

Pointers are written before the commit and removed after the last snapshot that needs them; their
keys are never used again. So a pointer may lead nowhere, or to something that has changed since:
readers look at the scope itself. A pointer with a clipped name in its key holds the whole address;
the others are empty.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import orjson

from limpet.backends.buckets.protocol import Bucket, Listed
from limpet.backends.objects import keys
from limpet.backends.objects.files import Files, walk
from limpet.backends.objects.format import Fact, parse_key, parsed
from limpet.backends.objects.heads import Entry
from limpet.backends.objects.keys import Pointer
from limpet.core.rows import EMPTY
from limpet.errors import Corrupt, Unavailable
from limpet.model import ANY, ScopeKey

_CHUNK = 256


class Pointed(NamedTuple):
    """A pointer under its key, and the scope that it leads to."""

    scope: ScopeKey
    pointer: Pointer
    key: str


class Index:
    def __init__(self, files: Files) -> None:
        self._files = files

    @property
    def _bucket(self) -> Bucket:
        return self._files.bucket

    def spellings(self, scope: ScopeKey, fact: Fact) -> list[list[str]]:
        """Return the keys of the pointers that cover a kept snapshot, except that of its line.

        A label is spelt with the current key first, then as older keys did.
        """
        row = fact.row
        if not row.kept:
            return []
        cipher = self._files.ciphers.of(scope.session_id)
        found = [
            [keys.label_key(scope, *each, row.seq, stamp) for each in spelt]
            for label, stamp in zip(fact.labels.items(), fact.pointers, strict=True)
            if (spelt := cipher.labels(*label))
        ]
        return [*found, [keys.id_key(scope, row.id, row.seq)]] if fact.own else found

    def pointers_of(self, scope: ScopeKey, fact: Fact) -> list[str]:
        """Return the keys of the pointers to write for a snapshot."""
        return [current for current, *_ in self.spellings(scope, fact)]

    def current(self, scope: ScopeKey, facts: Iterable[Fact]) -> dict[str, str]:
        """Return for each pointer that snapshots may have the one that the current key writes."""
        spelt = (each for fact in facts for each in self.spellings(scope, fact))
        return {key: each[0] for each in spelt for key in each}

    def write(self, scope: ScopeKey, pointers: Sequence[str]) -> None:
        """Write pointers to a scope, durably."""
        clipped = [key for key in pointers if key.startswith(keys.INDEX) and "~" in key]
        plain = [key for key in pointers if key not in clipped]
        if plain:
            self._bucket.mark(plain)
        for key in clipped:
            self._bucket.put(key, orjson.dumps(list(scope)), expect=ANY)

    def remove(self, pointers: Collection[str]) -> None:
        """Remove pointers; one that is left leads nowhere, which is harmless."""
        if pointers:
            with suppress(Unavailable):
                self._bucket.delete(sorted(pointers))

    def walk(self, prefix: str, after: str = "") -> Iterator[Pointed]:
        listed = walk(self._bucket, prefix, after)
        while page := [each for _, each in zip(range(_CHUNK), listed, strict=False)]:
            yield from self.followed(page)

    def followed(self, page: Sequence[Listed]) -> Iterator[Pointed]:
        """Return what pointers point to; skip what is not a pointer."""
        long = [each.key for each in page if each.size]
        texts = dict(zip(long, self._bucket.get(long), strict=True)) if long else {}
        for each in page:
            pointer = keys.parse_pointer(each.key)
            if pointer is not None:
                stored = texts.get(each.key)
                scope = pointer.scope if stored is None else _address_in(stored.data)
                if scope is not None and pointer.leads_to(scope):
                    yield Pointed(scope, pointer, each.key)


def _address_in(data: bytes) -> ScopeKey | None:
    with suppress(Corrupt):
        return parsed(lambda: parse_key(orjson.loads(data)))
    return None


def stamped(fact: Fact, tail: Iterable[Entry], stamp: int, before: Fact | None = None) -> Fact:
    """Return a kept snapshot whose labels are covered by pointers.

    A pointer stands for a minute, so one that another snapshot of the tail has, or this one had
    `before`, is shared; the others get this stamp.
    """
    if not fact.row.kept or fact.row.labels == EMPTY:
        return fact._replace(pointers=())
    minute = keys.minute_of(fact.row.seq)
    facts = [entry.fact for entry in tail if keys.minute_of(entry.seq) == minute]
    known: dict[tuple[str, str], int] = {}
    for each in facts if before is None else [before]:
        if each.pointers:
            known |= zip(each.labels.items(), each.pointers, strict=True)
    pointers = tuple(known.get(pair, stamp) for pair in fact.labels.items())
    return fact._replace(pointers=pointers)
