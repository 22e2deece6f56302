"""How a snapshot is changed in place: an update, or a save that overwrites.

The copy is read first, then the head: whoever is the head is changed there and copied afterwards,
anything else in its copy alone. What decides is compared when it is written.
"""

from dataclasses import replace

from limpet.backends._objects.files import Beaten, Doc, Found, Grave
from limpet.backends._objects.headers import replaced_header
from limpet.backends._objects.heads import Head
from limpet.backends._objects.writing import Writer
from limpet.core import commits, document
from limpet.core.commits import Line, Verdict
from limpet.core.document import Header
from limpet.core.layout import is_clipped
from limpet.core.rows import info_of
from limpet.errors import (
    AlreadyExists,
    Conflict,
    Corrupt,
    InvalidInput,
    NotFound,
    Unavailable,
)
from limpet.model import ANY, ScopeKey, SnapshotInfo
from limpet.protocol import Commit


class Replacer:
    """Changes snapshots in place."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._files = writer.files
        self._heads = writer.heads
        self._history = writer.history

    def replace(self, commit: Commit) -> SnapshotInfo:
        """Replace a snapshot in place: the copy is read first, then the head."""
        scope, id = commit.scope, commit.id
        if id is None:
            raise InvalidInput("an update needs the id of its snapshot")
        copy = self._files.read_one(self._files.copy_place(scope, id), whole=True, versions=True)
        head = self._heads.read(scope, versions=True)
        shown = head.shown
        if head.is_void:
            if commit.expect is not ANY:
                self._writer.restore(scope, head)
            shown = self._history.newest(scope, head)
        is_head = head.shown is not None and head.shown.header.id == id
        if isinstance(copy, Corrupt) and not is_head:
            raise copy
        existing = head.shown if is_head else None
        if not is_head and isinstance(copy, Doc) and head.counts(copy.header):
            existing = copy
        life = self._writer.life(scope, head, commit.stamp.now) if head.is_foreign else None
        line = Line(None if shown is None else shown.row, fence=head.fence)
        try:
            verdict = commits.judge(
                commit,
                line,
                None if existing is None else existing.row,
                lambda: self._writer.body_of(scope, head, existing) == commit.body,
            )
        except (AlreadyExists, Conflict, NotFound):
            if not is_head and self._has_changed(scope, id, copy):
                raise Beaten from None
            raise
        if existing is None or verdict is Verdict.INSERT or not isinstance(commit.body, bytes):
            raise Beaten  # what a save was to overwrite has just gone
        if verdict is Verdict.UNCHANGED:
            return info_of(scope, existing.row)
        row = commits.replaced_row(commit, existing.row, size=len(commit.body))
        header = replaced_header(existing.header, row)
        if life is not None and is_head:
            header = replace(
                header,
                line=life.line,
                last=life.last,
                floor=life.floor,
                mixed=life.mixed,
                foreign=life.foreign,
                session_id=scope.session_id if is_clipped(scope.session_id) else None,
                scope_id=scope.scope_id if is_clipped(scope.scope_id) else None,
            )
        if is_head:
            self._replace_head(scope, head, header, copy, commit.body)
        else:
            self._replace_copy(scope, head, existing, header, commit.body)
        return info_of(scope, row)

    def _has_changed(self, scope: ScopeKey, id: str, copy: Found) -> bool:
        """Tell whether a copy is another than it was before the head was read.

        It may have been the head then, and have been copied since. To change it, the compare-and-
        set is proof enough; to refuse needs another look.
        """
        now = self._files.read_one(self._files.copy_place(scope, id), versions=True)
        versions = [each.version if isinstance(each, Doc | Grave) else None for each in (copy, now)]
        return versions[0] != versions[1]

    def _replace_head(
        self, scope: ScopeKey, head: Head, header: Header, copy: Found, body: bytes
    ) -> None:
        doc = self._writer.swap_head(scope, head, header, body)
        if header.kept:
            try:
                self._writer.copy(scope, header, doc.stored or b"", known=copy)
            except Unavailable as error:
                raise Unavailable(
                    f"the snapshot is changed, but not yet in history. id=`{header.id}`",
                    outcome_known=False,
                ) from error
        known = Head(doc._replace(stored=None), doc.version, copied=header.kept)
        self._heads.remember(scope, known if doc.version is not None else None)

    def _replace_copy(
        self, scope: ScopeKey, head: Head, copy: Doc, header: Header, body: bytes
    ) -> None:
        self._writer.bump(scope, head)
        self._writer.index.point(scope, header, beside=None if copy.foreign else copy.header)
        self._files.swap(
            self._files.layout.copy_key(scope, header.id),
            document.write(header, scope.kind, body),
            expect=copy.version,
            nonce=header.w,
            base=copy.header.w,
        )
