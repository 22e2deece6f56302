"""Writes a text that is to be forgotten wherever a store can hold one, and looks for its traces."""

import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import zstandard

from limpet import JSON, Scope, Store

REPLACEMENT = "(removed)"
_PIECE = 12  # bytes of it that are taken for a trace, since deltas cut texts into pieces


def new_canary(seed: int) -> str:
    return random.Random(seed).randbytes(24).hex()


SESSION = new_canary(42)
OTHER = "other"


def words(count: int, seed: int) -> str:
    """Return text that cannot be compressed well."""
    chance = random.Random(seed)
    return " ".join(f"{chance.randrange(10**9)}" for _ in range(count))


def fill(store: Store, canary: str) -> list[Scope]:
    """Write the canary into a session in every way there is; return the scopes that are no forks.

    There are small and large states, deltas and segments, drafts that were replaced, appends,
    forks, changes in place, and notes.
    """
    chat = store.scope(SESSION, "planner")
    said: list[JSON] = [words(400, n) for n in range(6)]  # so that a whole state is compressed
    for n in range(70):
        said = [*said, f"turn {n} {words(30, n)}", *([f"I am {canary}"] if n % 16 == 3 else [])]
        chat.save({"secret": canary, "said": said}, id=f"s{n}")
    facts = {"error": {"at": canary}, "fine": 1}
    chat.append("said", [{"by": canary}], status=canary, labels={"user": canary}, metadata=facts)
    chat.save({"draft": canary}, keep=False)
    chat.update("s7", lambda s: s.with_(state={**s.state, "more": [canary]}))
    fork = chat.fork("s40")
    fork.append("said", [f"in a fork: {canary}"])
    fork.fork(next(fork.ids()), scope_id="named", patch={"patched": canary})
    chat.set_note("title", canary)
    chat.set_note("long", [canary, words(200, 2)])
    chat.set_note("review", {"by": [canary]}, on="s9")
    chat.set_note("orphan", canary, on="never-saved")
    small = store.scope(SESSION, "small")
    for n in range(12):
        small.save({"n": n, "who": canary}, labels={"who": canary})
    drafts = store.scope(SESSION, "drafts")
    for n in range(6):  # no snapshot has it in the end, but what they are stored as builds on it
        secret = canary if n in (1, 2, 3) else ""
        drafts.save({"text": words(400, 9), "n": n, "secret": secret}, keep=n == 0)
    return [chat, small, drafts]


def fill_for_a_while(store: Store, canary: str) -> Scope:
    """Write the canary into snapshots of a scope, and not into those that are saved after them."""
    chat = store.scope(SESSION, "planner")
    for n in range(70):
        secret = canary if n < 36 else ""
        state = {"secret": secret, "said": [words(40, m) for m in range(n)]}
        facts: dict[str, str] = {"user": secret} if n % 8 else {}
        chat.save(state, id=f"s{n}", status=secret, labels=facts, metadata=facts)
        chat.set_note("review", {"by": [secret]}, on=f"s{n}")
    return chat


def everything(store: Store, session_id: str) -> Any:
    """Return all that a session shows, except what each write makes new."""
    shown: dict[Any, Any] = {}
    for listed in store.scopes(session_id):
        scope = store.scope(*listed.key)
        head = scope.load()
        kept = list(scope.load_many(scope.ids()))
        shown[listed.key] = [
            [(s.id, s.parent_id, s.status, s.labels, s.metadata, s.state) for s in kept],
            head and (head.id, head.kept, head.status, head.labels, head.metadata, head.state),
            [(n.name, n.value) for n in scope.notes()],
            [(n.snapshot_id, n.name, n.value) for n in scope.notes(on=list(scope.noted_ids()))],
        ]
    return shown


def replaced(value: Any, canary: str) -> Any:
    """Return what is shown after the canary was redacted."""
    if isinstance(value, str):
        return REPLACEMENT if canary in value else value
    if isinstance(value, dict):
        return {key: replaced(each, canary) for key, each in value.items()}
    if isinstance(value, list):
        return [replaced(each, canary) for each in value]
    if isinstance(value, tuple):
        return tuple(replaced(each, canary) for each in value)
    return value


def traces(canary: str, stored: Iterable[tuple[str, bytes]]) -> Iterator[str]:
    """Yield the names of all texts that have a piece of the canary, also if they are compressed."""
    text = canary.encode()
    pieces = [text[at : at + _PIECE] for at in range(0, len(text) - _PIECE, 4)]
    for name, data in stored:
        if any(piece in found for found in decompressed(data) for piece in pieces):
            yield name


def decompressed(stored: bytes) -> Iterator[bytes]:
    """Yield bytes as they are, and what the frames of zstd among them hold."""
    yield stored
    at = stored.find(zstandard.FRAME_HEADER)
    while at >= 0:
        with suppress(zstandard.ZstdError):
            yield zstandard.ZstdDecompressor().decompressobj().decompress(stored[at:])
        at = stored.find(zstandard.FRAME_HEADER, at + 1)


def held(
    thing: Any, name: str = "memory", seen: set[int] | None = None
) -> Iterator[tuple[str, bytes]]:
    """Yield the texts that an object of ours holds in memory, in all that it leads to."""
    seen = set() if seen is None else seen
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, str | bytes):
        yield name, thing.encode("utf-8", "replace") if isinstance(thing, str) else thing
    inside: list[Any] = []
    if isinstance(thing, dict):
        inside = [*thing, *thing.values()]
    elif isinstance(thing, list | tuple | set | frozenset):
        inside = list(thing)
    if type(thing).__module__.startswith("limpet"):
        slots = [slot for each in type(thing).__mro__ for slot in getattr(each, "__slots__", ())]
        inside += [*vars(thing).values()] if hasattr(thing, "__dict__") else []
        inside += [getattr(thing, slot) for slot in slots if hasattr(thing, slot)]
    for each in inside:
        yield from held(each, f"{name} {type(thing).__name__}", seen)
