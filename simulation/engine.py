"""The engine under simulation: with small numbers, and a look at its objects.

Its tails are flushed after two snapshots and its segments hold few, so that short runs have many.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from limpet.backends.buckets.protocol import Bucket, Stored
from limpet.backends.objects import edits, keys
from limpet.backends.objects.backend import ObjectBackend
from limpet.backends.objects.history import tail_states
from limpet.backends.objects.objects import Head, parse_head, parse_segment, unpack
from limpet.core import codec
from limpet.model import Pruned, ScopeKey
from limpet.protocol import Backend, Clock, Stamp

_SMALL = {"TAIL_ITEMS_MAX": 2, "SEGMENT_ITEMS_MAX": 4, "BASE_BYTES_MAX": 60}


@contextmanager
def small_objects() -> Iterator[None]:
    """Let objects be small, in this block alone: the process may have other stores."""
    before = {name: getattr(edits, name) for name in _SMALL}
    vars(edits).update(_SMALL)
    try:
        yield
    finally:
        vars(edits).update(before)


class Inspected(ObjectBackend):
    """The engine; after a deletion the storage itself is searched for what was deleted."""

    def delete_snapshots(
        self, scope: ScopeKey, ids: Sequence[str], *, spare_head: bool = False, **options: Any
    ) -> Pruned:
        objects: Mapping[str, Stored] = self._bucket.below._storage.objects  # type: ignore[attr-defined]
        before = {key for key in objects if "/segments/" in key}
        found = list(_snapshots(objects, scope))
        doomed = {tag for id, tags in found if id in ids for tag in tags}
        # What others hold too is for those to answer who delete the others.
        doomed -= {tag for id, tags in found if id not in ids for tag in tags}
        answer = super().delete_snapshots(scope, ids, spare_head=spare_head, **options)
        heads = _heads(objects)
        left = {
            tag for head in heads for _, tags in _snapshots(objects, head.scope) for tag in tags
        }
        named = {keys.segment_key(h.scope, each.name) for h in heads for each in h.segments}
        for key, stored in list(objects.items()):
            if key.endswith("/head") or key in named or key in before:
                for tag in doomed - left:
                    assert not _holds(stored.data, tag), f"{tag} was deleted and is in {key}"
        return answer


def _holds(data: bytes, tag: str) -> bool:
    text = codec.encode(tag)
    return text in data or text.replace(b'"', b'\\"') in data


def _heads(objects: Mapping[str, Stored]) -> list[Head]:
    found = [each.data for key, each in objects.items() if key.endswith("/head")]
    return [parse_head(data).facts_only for data in found]


def _snapshots(objects: Mapping[str, Stored], scope: ScopeKey) -> Iterator[tuple[str, list[str]]]:
    """Return the ids of a scope and what their states hold, past the engine."""
    found = objects.get(keys.head_key(scope))
    if found is None:
        return
    head = parse_head(found.data).whole()
    base, texts = head.base, dict[int, bytes]()
    facts = [entry.fact for entry in head.entries]
    for named in head.segments:
        stored = objects[keys.segment_key(scope, named.name)]
        segment = parse_segment(unpack("segment", stored.data))
        base = segment.chain.first if head.base is None else base
        for at, fact in enumerate(reversed(segment.facts)):
            texts[fact.row.seq] = segment.chain.text(at)
            facts.append(fact)
    texts |= tail_states(head, base or b"", [entry.row.seq for entry in head.entries])
    for fact in facts:
        state = codec.decode(texts[fact.row.seq])
        yield fact.row.id, list(state.get("log", ())) if isinstance(state, dict) else []


def open_objects(bucket: Bucket, clock: Clock, draw: Callable[[], Stamp]) -> Backend:
    """Open the engine."""
    return Inspected(bucket, clock=clock, draw=draw)
