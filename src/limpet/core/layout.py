"""The keys of documents and index pointers in a bucket or a directory: from ids, and back.

A name in a key is an escaped id: `+` and two hex digits for every UTF-8 byte outside `[a-z0-9_-]`.
So no name holds a capital (file systems that ignore case cannot confuse two), a `/` or a `.` (none
leads elsewhere, and `.` can separate names), a `=` (it separates a label and its value) or a `~`.
`~` marks a name that was clipped because it is too long: it is preceded by the beginning of the id,
in whole characters, and followed by half of the id's sha256. Kinds are written as they are.

The id cannot be recovered from a clipped name: the document has it in full.
"""

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple, TypeAlias

from limpet.errors import InvalidInput
from limpet.model import ScopeKey, SnapshotRef

# A key has at most 1,024 bytes on S3, and a file name 255. With these numbers the longest key of
# each sort still fits.
ROOT_BYTES_MAX = 300
NAME_BYTES_MAX = 200
NOTED_NAME_BYTES_MAX = 100  # the last two names of a snapshot's note share the room of one
INDEX_NAME_BYTES_MAX = 48  # up to five names are in one file name

INDEX = ".limpet/index/"

_UNSAFE = re.compile(rb"[^a-z0-9_-]")
_BYTE = re.compile(rb"\+([0-9a-f]{2})")
_DIGEST_CHARS = 32
_MARK_BYTES = 1 + _DIGEST_CHARS

_SEQ_LAST = 2**64 - 1
_AT_LAST = 10**15

_NAME = r"(?:[a-z0-9_-]|\+[0-9a-f]{2})+(?:~[0-9a-f]{32})?"
_KIND = r"[a-z0-9_-]{1,64}|multiAgent"
_DOCUMENT = re.compile(
    rf"(?P<session>{_NAME})/scopes/(?P<kind>{_KIND})/(?P<scope>{_NAME})/snapshots/"
    rf"(?:(?P<head>snapshot_latest)|(?P<manifest>manifest)|(?P<lease>lease)"
    rf"|immutable_history/snapshot_(?P<copy>{_NAME})"
    rf"|notes/scope/(?P<note>{_NAME})|notes/on/(?P<on>{_NAME})/(?P<noted>{_NAME}))\.json"
)
_BORN = r"(?P<born>[0-9a-z]+)"
_ADDRESS = (rf"(?P<session>{_NAME})", rf"(?P<kind>{_KIND})", rf"(?P<scope>{_NAME})")
_BY_DOTS, _BY_FOLDERS, _ID = r"\.".join(_ADDRESS), "/".join(_ADDRESS), rf"(?P<id>{_NAME})"
_POINTERS = tuple(
    re.compile(re.escape(INDEX) + pattern)
    for pattern in (
        rf"snapshots/{_ID}/{_BY_DOTS}\.{_BORN}",
        rf"order/{_BY_FOLDERS}/(?P<seq>[0-9a-f]{{16}})\.{_ID}\.{_BORN}",
        rf"labels/{_NAME}=(?:{_NAME})?/(?P<at>[0-9]{{15}})\.{_BY_DOTS}\.{_ID}\.{_BORN}",
    )
)


class Clipped(NamedTuple):
    """What a clipped name has of its id: the beginning, and a digest."""

    start: str
    digest: str

    def matches(self, id: str) -> bool:
        return id.startswith(self.start) and _digest(id) == self.digest


Name: TypeAlias = str | Clipped
"""An id as a key has it: in full, or clipped."""


def escape(id: str) -> str:
    """Escape an id for a key. Different ids stay different, and a prefix stays a prefix."""
    return _UNSAFE.sub(lambda found: b"+%02x" % found[0][0], id.encode()).decode()


def unescape(name: str, bytes_max: int = NAME_BYTES_MAX) -> Name | None:
    """Return the id of a name in a key, `Clipped` if it was clipped, None if it is not valid.

    Each id has exactly one valid name, so that no id is listed twice: another spelling of the same
    bytes, or a name that should have been clipped, is not valid.
    """
    start, mark, digest = name.partition("~")
    try:
        id = _BYTE.sub(lambda found: bytes.fromhex(found[1].decode()), start.encode()).decode()
    except UnicodeError:
        return None
    if not id or len(name) > bytes_max or escape(id) != start:
        return None
    if not mark:
        return id
    return Clipped(id, digest) if re.fullmatch("[0-9a-f]{32}", digest) else None


def is_clipped(id: str) -> bool:
    """Return whether an id is too long for the key of a document, which then lacks part of it."""
    return len(escape(id)) > NAME_BYTES_MAX


def clipped_ids(scope: ScopeKey) -> tuple[str | None, str | None]:
    """Return the ids of a session and a scope that the keys of documents have clipped."""
    session_id, scope_id = scope.session_id, scope.scope_id
    return (
        session_id if is_clipped(session_id) else None,
        scope_id if is_clipped(scope_id) else None,
    )


def listing_order(id: str) -> str:
    """Return the sort key of ids where listings are in the order of keys."""
    return f"{name_of(id)}."


@lru_cache(maxsize=4096)
def name_of(id: str, bytes_max: int = NAME_BYTES_MAX) -> str:
    """Return the name of an id in a key: escaped, and clipped if it is too long."""
    escaped = escape(id)
    if len(escaped) <= bytes_max:
        return escaped
    return f"{cut(id, bytes_max)}~{_digest(id)}"


def cut(id: str, bytes_max: int) -> str:
    """Return the escaped beginning of an id, in whole characters, that a clipped name has."""
    kept = ""
    for character in id:
        longer = kept + escape(character)
        if len(longer) > bytes_max - _MARK_BYTES:
            break
        kept = longer
    return kept


def _digest(id: str) -> str:
    return sha256(id.encode()).hexdigest()[:_DIGEST_CHARS]


class File(Enum):
    HEAD = "the current document of a scope"
    COPY = "a snapshot in history"
    MANIFEST = "the manifest of a scope"
    NOTE = "a note"
    LEASE = "the lease of a scope"


class DocumentKey(NamedTuple):
    """A parsed document key. `id` is that of the snapshot, also for a note of a snapshot."""

    file: File
    session_id: Name
    kind: str
    scope_id: Name
    id: Name | None = None
    note: Name | None = None

    @property
    def clipped(self) -> bool:
        return any(isinstance(part, Clipped) for part in self)


@dataclass(frozen=True, slots=True)
class Layout:
    """The keys of documents below a root: "" or text that ends with `/`, at most 300 bytes.

    `sessions/` is ours, "" that of the Strands storages, `session/` their unified one.
    """

    root: str = "sessions/"

    def __post_init__(self) -> None:
        *folders, last = self.root.split("/")
        if last or not {"", ".", ".."}.isdisjoint(folders):
            raise InvalidInput(f"a root must be empty or folders, each with a `/`. `{self.root}`")
        if len(self.root.encode()) > ROOT_BYTES_MAX:
            raise InvalidInput(f"a root is too long. max=`{ROOT_BYTES_MAX}` root=`{self.root}`")

    def sessions_prefix(self, prefix: str = "") -> str:
        """Return the key prefix of all sessions whose ids begin with `prefix`.

        If the prefix is long, other sessions share it: compare the ids as well.
        """
        escaped = escape(prefix)
        if len(escaped) > NAME_BYTES_MAX - _MARK_BYTES:
            escaped = cut(prefix, NAME_BYTES_MAX)
        return self.root + escaped

    def session_prefix(self, session_id: str) -> str:
        return f"{self.root}{name_of(session_id)}/"

    def scope_prefix(self, scope: ScopeKey) -> str:
        session = self.session_prefix(scope.session_id)
        return f"{session}scopes/{scope.kind}/{name_of(scope.scope_id)}/snapshots/"

    def head_key(self, scope: ScopeKey) -> str:
        return f"{self.scope_prefix(scope)}snapshot_latest.json"

    def history_prefix(self, scope: ScopeKey) -> str:
        return f"{self.scope_prefix(scope)}immutable_history/"

    def copy_key(self, scope: ScopeKey, id: str) -> str:
        return f"{self.history_prefix(scope)}snapshot_{name_of(id)}.json"

    def beside_head(self, head_key: str, id: str) -> str:
        """Return the key of a snapshot in history, from the key of its scope's head."""
        folder = head_key.removesuffix("snapshot_latest.json")
        return f"{folder}immutable_history/snapshot_{name_of(id)}.json"

    def manifest_key(self, scope: ScopeKey) -> str:
        return f"{self.scope_prefix(scope)}manifest.json"

    def lease_key(self, scope: ScopeKey) -> str:
        return f"{self.scope_prefix(scope)}lease.json"

    def notes_prefix(self, scope: ScopeKey, on: str | None = None) -> str:
        """Return the key prefix of the notes of a scope, or of one of its snapshots."""
        where = "scope" if on is None else f"on/{name_of(on, NOTED_NAME_BYTES_MAX)}"
        return f"{self.scope_prefix(scope)}notes/{where}/"

    def all_notes_prefix(self, scope: ScopeKey) -> str:
        return f"{self.scope_prefix(scope)}notes/"

    def noted_prefix(self, scope: ScopeKey) -> str:
        """Return the key prefix of the notes of all snapshots of a scope."""
        return f"{self.scope_prefix(scope)}notes/on/"

    def noted_end(self, scope: ScopeKey, on: str) -> str:
        """Return a text between the keys of a snapshot's notes and the keys that follow."""
        return self.notes_prefix(scope, on)[:-1] + chr(ord("/") + 1)

    def note_key(self, scope: ScopeKey, name: str, on: str | None = None) -> str:
        """Return the key of a note, unless it is stored under `manifest_key`."""
        bytes_max = NAME_BYTES_MAX if on is None else NOTED_NAME_BYTES_MAX
        return f"{self.notes_prefix(scope, on)}{name_of(name, bytes_max)}.json"

    def parse(self, key: str) -> DocumentKey | None:
        found = _DOCUMENT.fullmatch(key[len(self.root) :]) if key.startswith(self.root) else None
        if found is None:
            return None
        session, scope = unescape(found["session"]), unescape(found["scope"])
        if session is None or scope is None:
            return None
        where = (session, found["kind"], scope)
        for file in (File.HEAD, File.MANIFEST, File.LEASE):
            if found[file.name.lower()]:
                return DocumentKey(file, *where)
        if found["copy"]:
            id = unescape(found["copy"])
            return None if id is None else DocumentKey(File.COPY, *where, id=id)
        if found["note"]:
            note = unescape(found["note"])
            return None if note is None else DocumentKey(File.NOTE, *where, note=note)
        on = unescape(found["on"], NOTED_NAME_BYTES_MAX)
        note = unescape(found["noted"], NOTED_NAME_BYTES_MAX)
        if on is None or note is None:
            return None
        return DocumentKey(File.NOTE, *where, id=on, note=note)


class Pointer(NamedTuple):
    """A parsed key of the index: the snapshot it points to, and what it is sorted by."""

    session_id: Name
    kind: str
    scope_id: Name
    id: Name
    born: str
    seq: int | None = None
    at_ms: int | None = None


def _short(id: str) -> str:
    return name_of(id, INDEX_NAME_BYTES_MAX)


def _address(scope: ScopeKey, between: str) -> str:
    return between.join((_short(scope.session_id), scope.kind, _short(scope.scope_id)))


def id_prefix(id: str) -> str:
    """Return the prefix of the pointers to snapshots with this id, in all scopes."""
    return f"{INDEX}snapshots/{_short(id)}/"


def ids_prefix(id_prefix: str) -> str:
    """Return the prefix of the pointers to all ids with a prefix, and maybe to others.

    A long id is clipped in a pointer, so no more of the text is used than a clipped id keeps.
    """
    return f"{INDEX}snapshots/{cut(id_prefix, INDEX_NAME_BYTES_MAX)}"


def id_key(ref: SnapshotRef, *, born: str) -> str:
    """Return the pointer to a snapshot by its id; `born` makes it unique."""
    return f"{id_prefix(ref.id)}{_address(ref.scope, '.')}.{born}"


def order_prefix(scope: ScopeKey) -> str:
    """Return the prefix of the pointers to a scope's history; the newest sorts first."""
    return f"{INDEX}order/{_address(scope, '/')}/"


def session_order_prefix(session_id: str) -> str:
    return f"{INDEX}order/{_short(session_id)}/"


def order_start(scope: ScopeKey, seq: int) -> str:
    """Return a text after the pointers down to `seq`, and before all lower ones."""
    return f"{order_prefix(scope)}{_SEQ_LAST - seq:016x}.~"


def orders_prefix(prefix: str) -> str:
    """Return the prefix of the pointers to the history of all sessions with a prefix.

    If it is long, other sessions share it: compare the ids as well.
    """
    escaped = escape(prefix)
    if len(escaped) > INDEX_NAME_BYTES_MAX - _MARK_BYTES:
        escaped = cut(prefix, INDEX_NAME_BYTES_MAX)
    return f"{INDEX}order/{escaped}"


def order_key(ref: SnapshotRef, *, seq: int, born: str) -> str:
    return f"{order_prefix(ref.scope)}{_SEQ_LAST - seq:016x}.{_short(ref.id)}.{born}"


def label_prefix(label: str, value: str) -> str:
    """Return the prefix of the pointers to snapshots with a label; the newest sorts first."""
    return f"{INDEX}labels/{_short(label)}={_short(value)}/"


def label_start(label: str, value: str, *, at_ms: int) -> str:
    """Return a text before the pointers of a time and all earlier ones."""
    return f"{label_prefix(label, value)}{_AT_LAST - max(1, at_ms):015d}"


def label_key(ref: SnapshotRef, label: str, value: str, *, at_ms: int, born: str) -> str:
    """Return the pointer to a snapshot by one of its labels. `at_ms` counts from 1970."""
    # Fifteen digits hold milliseconds, not microseconds. A clock at 1970 would need a sixteenth.
    left = _AT_LAST - max(1, at_ms)
    address = _address(ref.scope, ".")
    return f"{label_prefix(label, value)}{left:015d}.{address}.{_short(ref.id)}.{born}"


def parse_pointer(key: str) -> Pointer | None:
    found = next((found for each in _POINTERS if (found := each.fullmatch(key))), None)
    if found is None:
        return None
    parts = found.groupdict()
    session, scope, id = (
        unescape(parts[part], INDEX_NAME_BYTES_MAX) for part in ("session", "scope", "id")
    )
    if session is None or scope is None or id is None:
        return None
    seq = None if parts.get("seq") is None else _SEQ_LAST - int(parts["seq"], 16)
    at_ms = None if parts.get("at") is None else _AT_LAST - int(parts["at"])
    return Pointer(session, parts["kind"], scope, id, parts["born"], seq, at_ms)
