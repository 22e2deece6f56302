"""Listing sessions and scopes: a listing of keys, and at most one read for each scope.

The rest of a folder is skipped once its scope is known.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import NamedTuple

from limpet.backends.buckets.protocol import Listed
from limpet.backends.objects import keys
from limpet.backends.objects.files import PAGE, Files
from limpet.backends.objects.heads import Head
from limpet.backends.objects.keys import ObjectKey
from limpet.errors import LimpetError
from limpet.model import ScopeKey

_CHUNK = 32  # scopes read together
_EMPTY_BYTES_MAX = 8 * 1024  # a head without snapshots is smaller


class Listing(NamedTuple):
    """A scope, and its head: None if it has none, an error if that cannot be read."""

    scope: ScopeKey
    head: Head | LimpetError | None


class Scopes:
    def __init__(self, files: Files) -> None:
        self._files = files

    def session_ids(self, prefix: str, after: str) -> Iterator[str]:
        start = f"{keys.session_prefix(after)}~" if after else ""
        for each in self._walk(keys.sessions_prefix(prefix), start, one_each=True):
            if each.scope.session_id.startswith(prefix):
                yield each.scope.session_id

    def walk(
        self, session_id: str | None = None, prefix: str = "", after: ScopeKey | None = None
    ) -> Iterator[Listing]:
        below = keys.sessions_prefix(prefix)
        if session_id is not None:
            below = keys.session_prefix(session_id)
        start = "" if after is None else f"{keys.scope_prefix(after)}~"
        found = self._walk(below, start, one_each=False)
        return (each for each in found if each.scope.session_id.startswith(prefix))

    def _walk(self, prefix: str, after: str, *, one_each: bool) -> Iterator[Listing]:
        done, start = "", after  # keys that begin with `done` are skipped
        while True:
            page = self._files.bucket.list(prefix, after=after, limit=PAGE)
            pairs = ((each, key) for each in page if (key := keys.parse(each.key)) is not None)
            groups = groupby(pairs, key=lambda pair: pair[1].folder)
            listed = ((folder, list(pairs)) for folder, pairs in groups)
            while chunk := list(islice(listed, _CHUNK)):
                for folder, found in self._read(chunk, one_each):
                    if found is not None and not (done and folder.startswith(done)):
                        yield found
                        done = _session_folder(folder) if one_each else folder
            if len(page) < PAGE:
                if not done and not start:
                    self._files.check_ours()
                return
            last = page[-1].key
            # Names that sort after `~` are foreign: then nothing is skipped.
            jump = f"{done}~"
            after = jump if done and last.startswith(done) and last < jump else last

    def _read(
        self, chunk: Sequence[tuple[str, list[tuple[Listed, ObjectKey]]]], one_each: bool
    ) -> Iterator[tuple[str, Listing | None]]:
        known = {
            folder: Listing(scope, None)
            for folder, pairs in chunk
            if one_each and (scope := pairs[0][1].scope) and any(_is_proof(*p) for p in pairs)
        }
        unread = [folder for folder, _ in chunk if folder not in known]
        found = self._files.list_heads([f"{folder}head" for folder in unread])
        heads = dict(zip(unread, found, strict=True))
        for folder, pairs in chunk:
            if folder in known:
                yield folder, known[folder]
                continue
            head, scope = heads[folder], pairs[0][1].scope
            is_held = isinstance(head, LimpetError)
            if isinstance(head, Head):
                scope = head.key
                is_held = head.record is not None and head.record.holds_anything
            elif head is None and scope is not None:
                signs = [each.key for each, key in pairs if key.line or key.segment]
                is_held = any(self._files.is_lost(scope, each) for each in signs)
            yield folder, Listing(scope, head) if is_held and scope is not None else None


def _is_proof(listed: Listed, key: ObjectKey) -> bool:
    """Return whether a key and a size show that a scope is not empty."""
    return key.is_head and listed.size > _EMPTY_BYTES_MAX


def _session_folder(folder: str) -> str:
    return f"{keys.ROOT}{folder[len(keys.ROOT) :].partition('/')[0]}/"
