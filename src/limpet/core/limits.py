"""The limits, each with its reason, and the checks of names and options against them."""

import re
from collections.abc import Mapping
from typing import Any

from limpet.errors import InvalidInput
from limpet.model import ScopeKey

KIB = 1024
MIB = 1024 * KIB

ID_CHARS_MAX = 512  # a tenant, a user and a conversation fit; still a short index row
KIND_CHARS_MAX = 64
LABELS_MAX = 64  # labels are indexed one by one; more facts than this belong in metadata
LABEL_CHARS_MAX = 256
STATUS_CHARS_MAX = 256
METADATA_BYTES_MAX = 64 * KIB  # metadata is read with every listing
STATE_BYTES_MAX = 64 * MIB  # larger things belong in a blob store, with a reference in the state
STORED_BYTES_MAX = 1024 * MIB  # of what is unpacked: stored bytes that say to be more are damaged
DEPTH_MAX = 200  # below the recursion limits of every JSON parser that may read the state
TOO_DEEP = f"a stored value has more than {DEPTH_MAX} levels, which Limpet does not write"
INTEGER_DIGITS_MAX = 4300  # what Python itself converts to and from text by default

PAGE_ITEMS_MAX = 256  # one page of a listing: a bounded amount of memory, few round trips
PRUNED_ITEMS_MAX = 1024  # one step of a prune: an engine may have to write them all again
PAGE_STATES_MAX = 16  # one page of whole states
CACHE_BYTES_MAX = 64 * MIB  # of last states, so that the next save need not read them
LOCK_WAIT_S_MAX = 30.0  # how long a writer waits for a lock
RETRY_S_MAX = 30.0  # how long an unreachable server is retried
WAIT_S_MAX = 86_400.0  # what an option may ask for
CONTENTION_WAIT_S_MAX = 30.0  # a limit on attempts instead would lose updates

# Keys of the metadata under which facades store foreign data unchanged; it may be as large as a
# state.
FACADE_KEYS = frozenset(
    {"strands", "genkit", "agentos", "runs", "langgraph", "claude", "pydantic_ai", "crewai"}
)

_KIND = re.compile(r"[a-z0-9_-]{1,64}")
_KIND_MIXED = "multiAgent"


def check_text(name: str, value: object, *, chars_max: int, chars_min: int = 0) -> str:
    """Return `value` as a plain str, or raise InvalidInput if it cannot be a name or a label."""
    if not isinstance(value, str):
        raise InvalidInput(f"{name} must be text. type=`{type(value).__name__}`")
    plain = str.__str__(value)
    if not chars_min <= len(plain) <= chars_max:
        raise InvalidInput(
            f"{name} must have {chars_min} to {chars_max} characters. found=`{len(plain)}`"
        )
    if "\0" in plain:
        raise InvalidInput(f"{name} must not contain NUL")
    try:
        plain.encode()
    except UnicodeEncodeError as cause:
        raise InvalidInput(f"{name} contains a lone surrogate. at=`{cause.start}`") from None
    return plain


def is_text(*names: str) -> bool:
    """Return whether names are valid text. What was read may be damaged, or none at all."""
    try:
        "".join(names).encode()
    except (TypeError, UnicodeEncodeError):
        return False
    return True


def check_id(name: str, value: object) -> str:
    """Return `value` as an id: 1 to 512 characters without NUL or lone surrogates."""
    return check_text(name, value, chars_max=ID_CHARS_MAX, chars_min=1)


def check_scope(session_id: object, scope_id: object, kind: object) -> ScopeKey:
    kind = check_text("kind", kind, chars_max=KIND_CHARS_MAX, chars_min=1)
    # Kinds are folder names, so two must not differ by case alone.
    if kind != _KIND_MIXED and (not _KIND.fullmatch(kind) or kind == _KIND_MIXED.lower()):
        raise InvalidInput(f"kind must match [a-z0-9_-] or be multiAgent. kind=`{kind}`")
    return ScopeKey(check_id("session_id", session_id), check_id("scope_id", scope_id), kind)


def check_labels(labels: object) -> dict[str, str]:
    """Return labels sorted by name, so that equal labels have equal encodings."""
    if labels is None:
        return {}
    if not isinstance(labels, Mapping):
        raise InvalidInput(f"labels must be a mapping. type=`{type(labels).__name__}`")
    given = dict(labels)  # the caller may change it meanwhile
    if len(given) > LABELS_MAX:
        raise InvalidInput(f"too many labels. found=`{len(given)}` max=`{LABELS_MAX}`")
    plain: dict[str, str] = {}
    for key, value in given.items():
        name = check_text("label name", key, chars_max=LABEL_CHARS_MAX, chars_min=1)
        plain[name] = check_text(f"label `{name}`", value, chars_max=LABEL_CHARS_MAX)
    return dict(sorted(plain.items()))


def check_status(status: object) -> str:
    return check_text("status", status, chars_max=STATUS_CHARS_MAX)


def check_flag(name: str, value: object) -> bool:
    """Return a bool; 0 and 1 are refused."""
    if not isinstance(value, bool):
        raise InvalidInput(f"{name} must be True or False. type=`{type(value).__name__}`")
    return value


def check_seconds(name: str, value: Any) -> float:
    """Return a time to wait: from 0 seconds to one day."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidInput(f"{name} must be a number of seconds. type=`{type(value).__name__}`")
    if not 0 <= value <= WAIT_S_MAX:
        raise InvalidInput(f"{name} must be from 0 to {WAIT_S_MAX:g} seconds. found=`{value}`")
    return float(value)


def check_count(name: str, value: Any) -> int | None:
    """Return a limit: None (no limit) or an integer from 0 on."""
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        shown = f"found=`{value}`" if type(value) is int else f"type=`{type(value).__name__}`"
        raise InvalidInput(f"{name} must be None or a whole number from 0 on. {shown}")
    return value
