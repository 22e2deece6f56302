"""Encrypted folders: keys, their files, and what a store shows."""

import base64
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from limpet import Corrupt, LimpetError, Store, opening
from limpet.core.encryption import NO_KEYS, Ciphers, Keys
from limpet.core.limits import KIB
from limpet.engine.rolling import Limits
from tests.buckets.opened import store_on

ONE, TWO, THREE = (base64.b64encode(bytes([each]) * 32).decode() for each in (1, 2, 3))
CANARY = "canary"


def open_folder(
    root: Path, keys: str | Callable[[], str] | None = ONE, *, allow_plaintext: bool = False
) -> Store:
    """Open a folder; every third save rolls, before it returns."""
    bucket = opening.open_files(f"file://{root}", sync=False)
    ciphers: Ciphers = NO_KEYS
    if keys is not None:
        ciphers = ciphers_of(keys, allow_plaintext=allow_plaintext)
    tails = Limits(3, newest_bytes=32 * KIB)
    return store_on(bucket, ciphers=ciphers, compress=ciphers.encrypts, tails=tails)


def ciphers_of(keys: str | Callable[[], str], **options: Any) -> Keys:
    return Keys(keys, random=os.urandom, monotonic=time.monotonic, **options)


def files(root: Path) -> dict[str, bytes]:
    """Return all files below a folder by their keys."""
    found = (each for each in root.rglob("*") if each.is_file())
    return {str(each.relative_to(root)): each.read_bytes() for each in found}


def noise(seed: int, count: int = 4000) -> str:
    """Return a text that does not compress; some of them fill a segment."""
    return "".join(f"{(seed + 1) * 7919 * each % 1_000_003:06d}" for each in range(1, count))


def fill(store: Store, session: str = "s") -> None:
    """Make a scope with segments, a draft and notes, with the canary in all that is content."""
    scope = store.scope(session)
    for at, id in enumerate("abcd"):
        state = {"id": id, CANARY: noise(at) + CANARY}
        metadata = {CANARY: [CANARY, at]}
        labels = {CANARY: f"{CANARY}-{at % 2}", "colour": CANARY}
        scope.save(state, id=id, labels=labels, metadata=metadata, status=f"{CANARY} {at}")
        scope.set_note("n", {CANARY: CANARY}, on=id)
    scope.set_note("n", [CANARY])
    scope.append(f"{CANARY}-list", [CANARY])
    scope.save({CANARY: CANARY}, id="draft", keep=False, labels={CANARY: CANARY})
    scope.fork("b", scope_id="fork", patch={CANARY: 1})
    scope.update("a", lambda found: found.with_(labels={CANARY: "changed"}))
    scope.delete_snapshot("c")


def shown(store: Store) -> dict[str, Any]:
    """Return what a store shows of content; times, revisions and minted ids are left out."""
    answers: dict[str, Any] = {"sessions": list(store.sessions())}
    for label in ({CANARY: f"{CANARY}-1"}, {"colour": CANARY}, {CANARY: "changed"}, {"no": "no"}):
        found = store.history(labels=label)
        answers[f"labelled {label}"] = [(info.scope, info.status) for info in found]
    answers["found"] = [None if i is None else i.scope for i in map(store.find, "abcd")]
    answers["newest"] = [(info.scope, info.status, info.metadata) for info in store.history()]
    for key in [info.key for info in store.scopes()]:
        scope = store.scope(*key)
        found = scope.load_many([info.id for info in scope.history()])
        head = scope.load()
        answers["/".join(key)] = (
            None if head is None else (head.state, head.labels, head.kept),
            [(each.state, each.labels, each.metadata, each.status, each.size) for each in found],
            [(each.name, each.value) for each in scope.notes()],
            [(each.name, each.value, each.snapshot_id) for each in scope.notes(on=["a", "d"])],
        )
    return answers


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except LimpetError as error:
        return Corrupt if isinstance(error, Corrupt) else type(error)
