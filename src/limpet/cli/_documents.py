"""A session as a document for people: read from the store while it is written."""

from collections.abc import Callable, Iterator
from itertools import islice

import limpet
from limpet.model import Finding, Note, ScopeKey, Snapshot
from limpet.views.document import ScopePage
from limpet.views.markdown import session_markdown
from limpet.views.page.page import session_page

_HISTORY_MAX = 1000  # lines of history of a scope: what a person may look at
_NOTES_MAX = 1000


class Document:
    """A session in Markdown or HTML. Knows afterwards what it holds and what was damaged."""

    def __init__(self, store: limpet.Store, session_id: str) -> None:
        self._store = store
        self._session_id = session_id
        self.snapshots = 0
        self.skipped: list[Finding] = []

    def parts(self, form: str, *, images: bool) -> Iterator[str]:
        """Yield the document in pieces."""
        contents = sorted(
            self._store.scopes(self._session_id),
            key=lambda each: (each.key.kind, each.key.scope_id),
        )
        pages = (self._page(each.key) for each in contents)
        if form == "markdown":
            return session_markdown(self._session_id, pages, contents=contents)
        return session_page(self._session_id, pages, contents=contents, images=images)

    def _page(self, key: ScopeKey) -> ScopePage:
        scope = self._store.scope(*key)
        history = list(islice(scope.history(), _HISTORY_MAX))
        self.snapshots += len(history)
        head = self._spared(key, scope.load)
        if head is not None and not head.kept:
            self.snapshots += 1
        return ScopePage(key, head, history, list(islice(_notes(scope), _NOTES_MAX)))

    def _spared(self, key: ScopeKey, load: Callable[[], Snapshot | None]) -> Snapshot | None:
        try:
            return load()
        except limpet.Corrupt as damage:
            self.skipped.append(Finding("error", "damaged", str(damage), key))
            return None


def _notes(scope: limpet.Scope) -> Iterator[Note]:
    yield from scope.notes()
    for id in scope.noted_ids():
        yield from scope.notes(on=id)
