"""Commits: the head first, then the pointers and the copy.

A save reads the head, then the copy with the caller's id. An update reads the copy, then the head:
a snapshot that is the head is changed there and copied afterwards, any other in its copy alone.
Every attempt applies the rules of core/commits.py again; what they depend on is compared when it is
written.
"""

from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b

from limpet.backends.buckets.protocol import Moved
from limpet.backends.objects.documents import Beaten, Doc, Found, Grave, trail_after, unknown
from limpet.backends.objects.heads import Head, Life, as_committed, new_header, replaced_header
from limpet.backends.objects.leases import is_held
from limpet.backends.objects.roll_forward import Writer
from limpet.core import commits, document, ids
from limpet.core.commits import ScopeState, Verdict
from limpet.core.document import Header
from limpet.core.layout import clipped_ids
from limpet.core.rows import info_of, unpack_ref
from limpet.errors import (
    AlreadyExists,
    Conflict,
    Corrupt,
    InvalidInput,
    LimpetError,
    NotFound,
    Unavailable,
)
from limpet.model import ANY, ScopeKey, SnapshotInfo
from limpet.protocol import Append, Commit, Copy

_RESENDS_MAX = 8


class Replacer:
    """Changes snapshots in place: an update, or a save that overwrites."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._files = writer.files
        self._heads = writer.heads
        self._history = writer.history

    def replace(self, commit: Commit) -> SnapshotInfo:
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
        line = ScopeState(None if shown is None else shown.row, fence=head.fence)
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
            raise Beaten  # what a save was to overwrite has just been deleted
        if verdict is Verdict.UNCHANGED:
            return info_of(scope, existing.row)
        row = commits.replaced_row(commit, existing.row, size=len(commit.body))
        header = replaced_header(existing.header, row)
        if life is not None and is_head:
            session_id, scope_id = clipped_ids(scope)
            header = replace(
                header,
                line=life.line,
                last=life.last,
                floor=life.floor,
                mixed=life.mixed,
                foreign=life.foreign,
                session_id=session_id,
                scope_id=scope_id,
            )
        if is_head:
            self._replace_head(scope, head, header, copy, commit.body)
        else:
            self._replace_copy(scope, head, existing, header, commit.body)
        return info_of(scope, row)

    def _has_changed(self, scope: ScopeKey, id: str, copy: Found) -> bool:
        """Return whether a copy has changed since before the head was read.

        It may have been the head then, and have been copied since. A change is protected by its
        compare-and-set; a refusal needs this second read.
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


class Saver:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._files = writer.files
        self._heads = writer.heads
        self._history = writer.history
        self._replacer = Replacer(writer)

    def commit(self, commit: Commit) -> SnapshotInfo:
        """As `Backend.commit`."""
        attempts = 0
        lost = False

        def attempt() -> SnapshotInfo:
            nonlocal attempts, lost
            attempts += 1
            try:
                return once()
            except Beaten as error:
                lost = lost or error.lost
                raise

        def once() -> SnapshotInfo:
            if commit.again and attempts == 1:
                stored = self._stored_before(commit)
                if stored is not None:
                    return stored
            if commit.replaces is not None:
                return self._replacer.replace(commit)
            # The remembered head may be outdated; then its compare-and-set fails. So it serves only
            # a save that replaces the head, and never refuses one or finds it unchanged.
            if attempts == 1 and commit.head and not commit.again:
                remembered = self._heads.remembered(commit.scope)
                if remembered is not None:
                    try:
                        return self._save(commit, remembered, fresh=False)
                    except (AlreadyExists, Conflict):
                        pass
            head = self._read(commit)
            if (commit.again or attempts > 1) and commit.stamp.nonce in nonces(head):
                # An answer was lost, and a write that seemed lost was stored after all.
                stored = self._stored_before(commit)
                if stored is not None:
                    return stored
            return self._save(commit, head)

        try:
            return self._writer.contend(commit.scope, attempt)
        except LimpetError as error:
            if lost and self._is_doubtful(commit, error):
                raise unknown(self._files.layout.head_key(commit.scope)) from error
            raise

    def _is_doubtful(self, commit: Commit, error: LimpetError) -> bool:
        """Return whether a create whose answer was lost may be stored, now or later."""
        if isinstance(error, Unavailable):
            return True
        try:
            head = self._heads.read(commit.scope)
        except LimpetError:
            return True
        return head.header is None or commit.stamp.nonce in nonces(head)

    def _read(self, commit: Commit) -> Head:
        whole = isinstance(commit.body, Append)
        try:
            return self._heads.read(commit.scope, whole=whole, versions=True)
        except Corrupt as damage:
            if commits.needs_head(commit):
                raise
            return self._set_aside(commit, damage) if commit.head else Head(damage=damage)

    def _set_aside(self, commit: Commit, damage: Corrupt) -> Head:
        """Return a damaged head to be replaced, after copying its bytes to a key next to it."""
        place = self._files.head_place(commit.scope)
        (stored,) = self._files.bucket.get([place.key])
        if stored is None or not isinstance(self._files.parsed(place, stored), Corrupt):
            raise Beaten  # another writer has replaced it
        digest = blake2b(stored.data, digest_size=8).hexdigest()
        with suppress(Moved):  # another writer has copied it
            self._files.bucket.put(f"{place.key}.damaged-{digest}", stored.data, expect=None)
        return Head(None, stored.version, damage=damage)

    # A save

    def _save(self, commit: Commit, head: Head, *, fresh: bool = True) -> SnapshotInfo:
        scope, shown = commit.scope, head.shown
        source, pending = self._source(commit)
        if head.is_void:
            if commit.expect is not ANY or isinstance(commit.body, Append):
                self._writer.restore(scope, head)
            shown = self._history.newest(scope, head)
        found: Found = None
        if commit.id is not None:
            found = self._existing(scope, commit.id, head)
        existing = found if isinstance(found, Doc) and self._is_there(found, head) else None
        life = self._writer.life(scope, head, commit.stamp.now, is_kept_only=not commit.head)
        line = self._line(commit, head, life, shown)
        verdict = commits.judge(
            commit,
            line,
            None if existing is None else existing.row,
            lambda: self._writer.body_of(scope, head, existing) == commit.body,
        )
        if existing is not None:
            if verdict is Verdict.UNCHANGED and not fresh:
                return self._save(commit, self._read(commit))
            if verdict is Verdict.UNCHANGED:
                return info_of(scope, existing.row)
            return self._replacer.replace(commit)
        body = self._body(commit, head, shown, source)
        if not commit.head:
            return self._aside(commit, head, life, line, found, body)
        return self._advance(commit, head, life, line, body, pending)

    def _existing(self, scope: ScopeKey, id: str, head: Head) -> Found:
        if head.shown is not None and head.shown.header.id == id:
            return head.shown
        found = self._files.read_one(self._files.copy_place(scope, id), whole=True, versions=True)
        if isinstance(found, Corrupt):
            raise found
        return found

    def _is_there(self, found: Doc, head: Head) -> bool:
        return found is head.shown or head.counts(found.header)

    def _line(self, commit: Commit, head: Head, life: Life, shown: Doc | None) -> ScopeState:
        now, _, bits = commit.stamp
        taken = commit.new_scope and self._is_taken(commit.scope, head, shown)
        return ScopeState(
            head=None if shown is None else shown.row,
            floor=life.floor,
            fence=life.fence,
            next_seq=ids.place(now, life.last, bits, aside=not commit.head),
            taken=taken,
        )

    def _is_taken(self, scope: ScopeKey, head: Head, shown: Doc | None) -> bool:
        if shown is not None:
            return True
        if not self._files.bucket.list(self._files.layout.scope_prefix(scope), limit=1):
            return False
        if self._history.newest_kept(scope, head) is not None:
            return True
        layout = self._files.layout
        prefixes = (f"{layout.scope_prefix(scope)}notes/", layout.manifest_key(scope))
        if any(self._files.bucket.list(prefix, limit=1) for prefix in prefixes):
            return True
        (stored,) = self._files.bucket.get([layout.lease_key(scope)])
        return is_held(stored)

    def _source(self, commit: Commit) -> tuple[Doc | None, str | None]:
        """Read the source of a fork, which must not have changed.

        Return also the line that the source must still have when the fork is stored, if it is in
        the same session.
        """
        ref = commit.forked_from
        if ref is None or (commit.source is None and not isinstance(commit.body, Copy)):
            return None, None
        head = self._heads.read(ref.scope)
        shown = self._history.shown(ref.scope, head)
        place = self._files.copy_place(ref.scope, ref.id)
        if shown is not None and shown.header.id == ref.id and not head.is_void:
            place = self._files.head_place(ref.scope)
        found = self._files.read_one(place, whole=True)
        if isinstance(found, Corrupt):
            raise found
        if isinstance(found, Doc) and (found.header.id != ref.id or found.header.void):
            raise Beaten  # the head has moved
        there = isinstance(found, Doc) and (place.id is None or head.counts(found.header))
        doc = found if there and isinstance(found, Doc) else None
        commits.check_source(commit, None if doc is None else doc.row)
        here = ref.scope.session_id == commit.scope.session_id and head.header is not None
        return doc, head.header.line if here and head.header is not None else None

    def _body(self, commit: Commit, head: Head, shown: Doc | None, source: Doc | None) -> bytes:
        body = commit.body
        if isinstance(body, Append):
            before = None
            if shown is not None and head.shown is not None:
                before = self._writer.whole(commit.scope, head).body
            elif shown is not None:
                before = self._read_copy(commit.scope, shown.header.id).body
            encoded, _ = commits.appended(body, before)
            return encoded
        if isinstance(body, Copy):
            if source is None:
                raise InvalidInput("a copy needs the snapshot that it is forked from")
            return source.body
        return body

    def _read_copy(self, scope: ScopeKey, id: str) -> Doc:
        found = self._files.read_one(self._files.copy_place(scope, id), whole=True)
        if isinstance(found, Corrupt):
            raise found
        if not isinstance(found, Doc):
            raise Beaten
        return found

    def _advance(
        self,
        commit: Commit,
        head: Head,
        life: Life,
        line: ScopeState,
        body: bytes,
        pending: str | None,
    ) -> SnapshotInfo:
        scope = commit.scope
        self._writer.roll_forward(scope, head)
        newest: list[str | None] = []

        def newest_kept() -> str | None:
            # Another process may have kept something next to a bare head. A draft does not check
            # that, so that a series of drafts costs one request each.
            known = (head.bare and not commit.keep) or (life.is_new and not life.foreign)
            newest.append(None if known else self._history.newest_kept(scope, head))
            return newest[0]

        row = commits.new_row(commit, line, size=len(body), newest_kept=newest_kept)
        header = replace(new_header(commit, row, life, line=life.line), pending=pending)
        if head.header is not None:
            header = replace(header, trail=trail_after(head.header))
        doc = self._writer.swap_head(scope, head, header, body)
        try:
            if pending is not None:
                doc = self._settle(scope, doc, body)
            begun = life.is_new or not (head.header and head.header.id)
            self._put_into_history(scope, doc, begun=begun)
        except Unavailable as error:
            raise Unavailable(
                f"the snapshot is stored, but not yet in history. id=`{header.id}`",
                outcome_known=False,
            ) from error
        bare = newest == [None] and not row.kept
        known = Head(doc._replace(stored=None), doc.version, copied=row.kept, bare=bare)
        floor = "" if commit.id is not None else row.id
        self._heads.remember(
            scope, known if doc.version is not None else None, floor=floor, last=row.seq
        )
        return info_of(scope, row)

    def _put_into_history(self, scope: ScopeKey, doc: Doc, *, begun: bool) -> None:
        if not doc.header.kept:
            return
        self._writer.copy(scope, doc.header, doc.stored or b"")
        now = self._files.read_head(scope) if begun else None
        if now is not None and now.header.line not in (None, doc.header.line):
            # A foreign tool overwrote the first head of this line, and another line has begun.
            raise Beaten

    def _settle(self, scope: ScopeKey, doc: Doc, body: bytes) -> Doc:
        """Finish a fork. If the line of its source has ended, the whole session was deleted."""
        head = self._heads.resolved(doc)
        if head.doc is None:
            if doc.version is not None:
                gone = Head(doc, doc.version)
                with suppress(Beaten):  # another writer has replaced it
                    self._writer.swap_head(scope, gone, self._writer.void(doc.header), b"{}")
            ref = unpack_ref(doc.header.forked_from)
            raise NotFound(f"there is no such snapshot. id=`{None if ref is None else ref.id}`")
        if doc.version is None:
            return doc
        header = self._writer.rewritten(doc.header)
        try:
            return self._writer.swap_head(scope, head, header, body)
        except Beaten:
            return doc._replace(version=None)  # another writer has replaced it

    # A save with head=False

    def _aside(
        self, commit: Commit, head: Head, life: Life, line: ScopeState, found: Found, body: bytes
    ) -> SnapshotInfo:
        """Keep a snapshot without making it the head: writing its copy is the commit."""
        scope = commit.scope
        row = commits.new_row(
            commit,
            line,
            size=len(body),
            newest_kept=lambda: self._history.newest_kept(scope, head),
        )
        strange = head.is_foreign or head.damage is not None
        own = None if life.is_new or strange else life.line
        header = new_header(commit, row, life, line=own)
        self._writer.index.point(scope, header)
        data = document.write(header, scope.kind, body)
        expect = found.version if isinstance(found, Doc | Grave) else None
        self._create(scope, header, data, expect)
        self._heads.remember(
            scope,
            None if head.bare else self._heads.remembered(scope),
            floor="" if commit.id is not None else row.id,
            last=row.seq,
        )
        return info_of(scope, row)

    def _create(self, scope: ScopeKey, header: Header, data: bytes, expect: str | None) -> None:
        place, lost = self._files.copy_place(scope, header.id), False
        for _ in range(_RESENDS_MAX):
            try:
                self._files.bucket.put(place.key, data, expect=expect)
                return
            except Moved:
                pass
            except Unavailable as error:
                if error.outcome_known and not lost:
                    raise
                lost = True
            try:
                found = self._files.read_one(place, versions=True)
            except Unavailable as error:
                raise unknown(place.key) from error
            if isinstance(found, Doc | Grave):
                born = found.header.born if isinstance(found, Doc) else found.tombstone.born
                if born == header.born:
                    return
            if not lost:
                raise Beaten
            if isinstance(found, Corrupt) or (found and found.version) != expect:
                break
        raise unknown(place.key)

    # A commit that may be stored already

    def _stored_before(self, commit: Commit) -> SnapshotInfo | None:
        """Find a commit by its nonce; None if it is certainly not stored."""
        scope, nonce = commit.scope, commit.stamp.nonce
        head = self._heads.read(scope)
        header = head.header
        shown = head.shown
        if shown is not None and nonce in (shown.header.nonce, shown.header.born):
            self._writer.roll_forward(scope, self._heads.read(scope, versions=True))
            return info_of(scope, as_committed(commit, shown.row))
        if commit.id is not None:
            for doc in self._history.copies(scope, head, [commit.id]):
                if nonce in (doc.header.nonce, doc.header.born, *doc.header.trail):
                    return info_of(scope, as_committed(commit, doc.row))
        else:
            for doc in self._history.walk(scope, head):
                if doc.header.born == nonce:
                    return info_of(scope, as_committed(commit, doc.row))
                if ids.place_us(doc.header.seq) < commit.stamp.now:
                    break
        if header is not None and nonce in header.trail and commit.replaces is None:
            raise Unavailable(
                f"the snapshot was stored, and deleted since. nonce=`{nonce}`", outcome_known=False
            )
        return None


def nonces(head: Head) -> tuple[str, ...]:
    return () if head.header is None else (head.header.w, *head.header.trail)
