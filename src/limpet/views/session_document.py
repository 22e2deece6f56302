"""A session as one document for people: Markdown, or an HTML page."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice

from limpet.api.store import Store
from limpet.errors import Corrupt
from limpet.model import Finding, ScopeInfo, ScopeKey, SnapshotInfo
from limpet.views.document import ScopePage
from limpet.views.markdown import session_markdown
from limpet.views.notes import notes_of
from limpet.views.overview import session_title
from limpet.views.page.page import session_page

_HISTORY_MAX = 1000  # snapshots of a scope that a document lists
_NOTES_MAX = 1000


def _as_it_is(info: SnapshotInfo) -> SnapshotInfo:
    return info


@dataclass
class SessionDocument:
    """Reads a session, scope by scope, while its `parts` are taken; `form` is markdown or html.

    `visible` returns what may be shown of a snapshot. Damaged heads are left out and `skipped`.
    """

    store: Store
    session_id: str
    form: str
    images: bool = False
    visible: Callable[[SnapshotInfo], SnapshotInfo] = _as_it_is
    snapshots: int = 0
    skipped: list[Finding] = field(default_factory=list)

    def parts(self) -> Iterator[str]:
        store, session_id = self.store, self.session_id
        contents = sorted(store.scopes(session_id), key=self._begun_at)
        title = session_title(store, session_id, contents)
        pages = (self._page(each.key) for each in contents)
        if self.form == "markdown":
            return session_markdown(session_id, pages, contents=contents, title=title)
        return session_page(session_id, pages, contents=contents, title=title, images=self.images)

    def _page(self, key: ScopeKey) -> ScopePage:
        scope = self.store.scope(*key)
        history = [self.visible(each) for each in islice(scope.history(), _HISTORY_MAX)]
        try:
            head = scope.load()
        except Corrupt as damage:
            self.skipped.append(Finding("error", "damaged", str(damage), key))
            head = None
        self.snapshots += len(history) + (head is not None and not head.kept)
        shown = None if head is None else replace(head, forked_from=self.visible(head).forked_from)
        return ScopePage(key, shown, history, list(islice(notes_of(scope), _NOTES_MAX)))

    def _begun_at(self, each: ScopeInfo) -> datetime:
        """Return when a scope began: a scope comes before its forks."""
        history = islice(self.store.scope(*each.key).history(), _HISTORY_MAX)
        first = next(iter(deque(history, maxlen=1)), each.head)
        return datetime.max.replace(tzinfo=UTC) if first is None else first.created_at
