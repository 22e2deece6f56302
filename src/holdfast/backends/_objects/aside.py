"""A head that cannot be read is put out of the way, so that its scope can go on.

Its bytes stay, in a file beside it, for whoever wants to look at them. In its place comes a void
head that shows the newest snapshot which can be read: as if the damaged one had been deleted.
"""

from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b

from holdfast.backends._bucket.protocol import Moved
from holdfast.backends._objects.files import Beaten, Doc
from holdfast.backends._objects.headers import never_shown
from holdfast.backends._objects.heads import Head
from holdfast.backends._objects.writing import Writer
from holdfast.core import document, ids
from holdfast.core.document import Header
from holdfast.errors import Corrupt
from holdfast.model import ScopeKey


class Aside:
    """Sets damaged heads aside."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def set_aside(self, scope: ScopeKey) -> bool:
        """Do it, as `Backend.set_aside` promises."""
        return self._writer.contend(scope, lambda: self._attempt(scope))

    def _attempt(self, scope: ScopeKey) -> bool:
        files = self._writer.files
        place = files.head_place(scope)
        (stored,) = files.bucket.get([place.key])
        damage = files.read_one(place, whole=True)
        if stored is None or not isinstance(damage, Corrupt):
            return False
        digest = blake2b(stored.data, digest_size=8).hexdigest()
        with suppress(Moved):  # somebody was here before, and went no further
            files.bucket.put(f"{place.key}.damaged-{digest}", stored.data, expect=None)
        header = self._void(scope, Head(damage=damage))
        try:
            data = document.write(header, scope.kind, b"{}")
            files.bucket.put(place.key, data, expect=stored.version)  # this line is the commit
        except Moved:
            raise Beaten from None  # it may be whole by now
        self._writer.heads.remember(scope, None)
        return True

    def _void(self, scope: ScopeKey, head: Head) -> Header:
        """Return a head that shows the newest copy, in the line of the newest that has one."""
        newest: Doc | None = None
        line: Doc | None = None
        for doc in self._writer.history.scan(scope, head):
            if newest is None or doc.header.seq > newest.header.seq:
                newest = doc
            if doc.header.line and (line is None or doc.header.seq > line.header.seq):
                line = doc
        stamp = self._writer.draw()
        floor, last = self._writer.heads.given(scope)
        name = self._writer.new_line(stamp.now) if line is None else line.header.line
        bare = never_shown(stamp.now, name or "")
        void = bare if newest is None else self._writer.void(newest.header)
        known = (floor, *(doc.header.floor for doc in (newest, line) if doc is not None))
        return replace(
            void,
            line=name,
            last=max(last, void.last, void.seq, ids.place_at(stamp.now)) if newest else void.last,
            floor=max(known),
            mixed=True,
            foreign=True,
            fence=None,
            w=stamp.nonce,
        )
