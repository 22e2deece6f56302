"""Items of LangGraph as notes: where they are, and what is stored.

| LangGraph               | Limpet                                                             |
|-------------------------|--------------------------------------------------------------------|
| namespace               | session, the labels joined by `/`; scope `main` of kind `items`    |
| `/` and `%` in a label  | `%2F` and `%25`                                                    |
| key                     | name of the note                                                   |
| value                   | `value` of the note's value                                        |
| `created_at`            | `created_at` there, in microseconds; kept when the item is changed |
| `updated_at`            | the time of the note                                               |
| `ttl`                   | `ttl` there, in minutes, and `expires_at`, in microseconds         |
| embeddings              | a note of the same name on the id `vectors`                        |

The note of embeddings has `vectors`, base64 of 32-bit floats by path, and in `of` a token that the
item has in `vectors`: with another item they do not count. They are apart from the item, so that
only a search by meaning reads them.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from langgraph.store.base import Item, PutOp, SearchItem

from limpet import jsonable
from limpet.api.integrations import (
    FoundNote,
    NoteChange,
    NoteDelete,
    NoteWrite,
    Tools,
    codec,
    limits,
    retention,
    times,
    upkeep,
)
from limpet.compat.wire import escaped, unescaped
from limpet.errors import InvalidInput
from limpet.model import ScopeKey

KIND, SCOPE_ID = retention.ITEMS.kind, retention.ITEMS.scope_id
CREATED_AT = "created_at"
VECTORS = retention.VECTORS
_MINUTE_US = 60_000_000
_TTL_MINUTES_MAX = 100 * 366 * 24 * 60


class Stored(NamedTuple):
    """An item as it is stored."""

    note: FoundNote
    namespace: tuple[str, ...]
    document: dict[str, Any]

    @property
    def ttl(self) -> float | None:
        return self.document.get("ttl")

    def item(self) -> Item:
        return Item(**self._facts())

    def search_item(self, score: float | None = None) -> SearchItem:
        return SearchItem(**self._facts(), score=score)

    def _facts(self) -> dict[str, Any]:
        created_us, updated_us = self.document[CREATED_AT], self.note.updated_at
        created_at = times.from_us(created_us)
        return {
            "namespace": self.namespace,
            "key": self.note.name,
            "value": self.document["value"],
            "created_at": created_at,
            "updated_at": created_at if created_us == updated_us else times.from_us(updated_us),
        }


# Namespaces


def session_id_of(namespace: Sequence[str]) -> str:
    """Return the session of a namespace, or of a prefix of namespaces; "" for the empty one."""
    for label in namespace:
        if not isinstance(label, str) or not label:
            raise InvalidInput(f"the labels of a namespace must be text. namespace=`{namespace}`")
    return "/".join(map(escaped, namespace))


@lru_cache(maxsize=4096)
def namespace_of(session_id: str) -> tuple[str, ...] | None:
    """Return the namespace of a session; None if another application made it."""
    labels = session_id.split("/")
    namespace = tuple(name for label in labels if (name := unescaped(label)))
    return namespace if len(namespace) == len(labels) else None


def scope_of(namespace: Sequence[str]) -> ScopeKey:
    """Return where the items of a namespace are."""
    try:
        return _scope(tuple(namespace))
    except TypeError:  # a label cannot be hashed, or there are none
        raise InvalidInput(
            f"a namespace must be a tuple of text. type=`{type(namespace).__name__}`"
        ) from None


@lru_cache(maxsize=4096)
def _scope(namespace: tuple[str, ...]) -> ScopeKey:
    session_id = session_id_of(namespace)
    if not 0 < len(session_id) <= limits.ID_CHARS_MAX:
        raise InvalidInput(
            f"the labels of a namespace must have 1 to {limits.ID_CHARS_MAX} characters in all, "
            f"joined by `/`. found=`{len(session_id)}`"
        )
    return limits.check_scope(session_id, SCOPE_ID, KIND)


def key_of(key: object) -> str:
    return limits.check_id("key", key)


# Items


def stored_of(note: FoundNote, now: Callable[[], int]) -> Stored | None:
    """Return the item of a note; None if it has expired, or another application made it."""
    document, namespace = note.value, namespace_of(note.scope.session_id)
    if namespace is None or type(document) is not dict:
        return None
    if type(document.get("value")) is not dict or type(document.get(CREATED_AT)) is not int:
        return None
    expires_at = document.get("expires_at")
    if expires_at is not None and (type(expires_at) is not int or expires_at <= now()):
        return None
    return Stored(note, namespace, document)


def changes_of(op: PutOp, vectors: Mapping[str, str] | None, tools: Tools) -> list[NoteChange]:
    """Return the changes that a put makes; without a value it deletes the item.

    `vectors` is None if there is no index: then old ones stay, and no longer count.
    """
    scope, key = scope_of(op.namespace), key_of(op.key)
    if op.value is None:
        return upkeep.item_deletes(scope, key)
    if not isinstance(op.value, Mapping):
        raise InvalidInput(f"the value of an item must be a dict. type=`{type(op.value).__name__}`")
    stamp = tools.draw()
    document: dict[str, Any] = {"value": dict(op.value)}
    if op.ttl is not None:
        document |= {"ttl": op.ttl, "expires_at": expiry_of(op.ttl, stamp.now)}
    if vectors:
        document[VECTORS] = stamp.nonce
    kept = (CREATED_AT, b"%d" % stamp.now)
    item = NoteWrite(scope, key, None, _encoded(document, tools), stamp, keep=kept)
    if vectors is None:
        return [item]
    if not vectors:
        return [item, NoteDelete(scope, key, VECTORS)]
    made = codec.encode({"of": stamp.nonce, VECTORS: dict(vectors)})
    return [item, NoteWrite(scope, key, VECTORS, made, stamp)]


def refreshed(stored: Stored, tools: Tools) -> NoteWrite:
    """Return the write that lets an item begin its time to live again; it is no update of it."""
    stamp = tools.draw()
    document = stored.document | {"expires_at": expiry_of(stored.ttl, stamp.now)}
    note = stored.note
    as_before = stamp._replace(now=note.updated_at)
    return NoteWrite(
        note.scope, note.name, None, _encoded(document, tools), as_before, note.revision
    )


def expiry_of(ttl: Any, now: int) -> int:
    is_number = isinstance(ttl, int | float) and not isinstance(ttl, bool)
    if not is_number or not 0 <= ttl <= _TTL_MINUTES_MAX:
        raise InvalidInput(f"ttl must be a number of minutes, up to 100 years. ttl=`{ttl!r}`")
    return now + int(ttl * _MINUTE_US)


def _encoded(document: dict[str, Any], tools: Tools) -> bytes:
    bytes_max = tools.state_bytes_max
    # As LangGraph's own stores: a date or a UUID is stored as text.
    default = tools.default or jsonable
    encoded = codec.encode(document, what="item", bytes_max=bytes_max, default=default)
    if len(encoded) > bytes_max:
        raise InvalidInput(f"the item is too large. bytes=`{len(encoded)}` max=`{bytes_max}`")
    return encoded
