"""Backups: a whole store, of any engine, in one file that is replaced as a whole."""

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from limpet.api.store import Store
from limpet.core.encryption import Ciphers
from limpet.engine import Engine
from limpet.engine.moving import version_of
from limpet.errors import AlreadyExists, Conflict, Corrupt, InvalidInput, Unavailable
from limpet.model import Finding, ScopeKey
from limpet.opening import open_backup
from limpet.portable.copying import Carried, Transfer, copy, engine_of
from limpet.portable.reading import (
    OnFinding,
    OnProgress,
    scope_records,
    scopes_of,
    sees_all,
    unlisted,
)


def backup(
    store: Store,
    path: str,
    *,
    sessions: Collection[str] = (),
    verify: bool = False,
    report: OnProgress | None = None,
) -> Carried:
    """Back a store up to a file, or bring some sessions in the file up to date.

    Each scope is as it was at one moment, with the same ids, order and revisions. Only what has
    changed since the file was written is read from the store; with `verify` everything is, and
    compared with what was written. The file is encrypted with the keys of the store. It is replaced
    as a whole at the end; when this is interrupted, the same call goes on. What is damaged in the
    store is in `skipped`: of that the file keeps what it had.

    Raises:
        InvalidInput: the path is something else, or the store is empty and the file is not.
        Unavailable: another backup is being written to this file.
        Corrupt: the store was opened without a key that it needs.
    """
    path = os.path.realpath(path)  # a link is followed, not replaced
    staged = f"{path}.part"
    with (
        _locked(staged, anew=bool(sessions)),
        open_backup(path, _ciphers_of(store), staged=staged) as target,
    ):
        done = _fill(store, target, sessions, verify, Transfer(report))
        target.compact()
    return done


def restore(
    store: Store,
    path: str,
    *,
    session_id: str | None = None,
    prefix: str = "",
    verify: bool = True,
    conflicts: OnFinding | None = None,
    report: OnProgress | None = None,
) -> Carried:
    """Copy a backup into a store; as `copy`."""
    with open_backup(path, _ciphers_of(store)) as source:
        return copy(
            source,
            store,
            session_id=session_id,
            prefix=prefix,
            verify=verify,
            conflicts=conflicts,
            report=report,
        )


def _ciphers_of(store: Store) -> Ciphers | None:
    engine = engine_of(store)
    return None if engine is None else getattr(engine.storage, "ciphers", None)


@contextmanager
def _locked(path: str, *, anew: bool) -> Iterator[None]:
    """Create a file that only one backup at a time writes, until it is renamed."""
    import fcntl  # which not every system has

    while True:
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as cause:
            fact = f"cannot write the file: {cause.strerror}. path=`{path}`"
            raise Unavailable(fact) from cause
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.exists(path) and os.path.samestat(os.fstat(file), os.stat(path)):
                if anew:  # what another backup has left is not finished
                    os.ftruncate(file, 0)
                try:
                    yield
                finally:
                    if not os.fstat(file).st_size:  # it was refused
                        os.unlink(path)
                return
        except BlockingIOError:
            raise Unavailable(f"another backup is being written. path=`{path}`") from None
        finally:
            os.close(file)


def _fill(
    store: Store, target: Store, sessions: Collection[str], verify: bool, transfer: Transfer
) -> Carried:
    with suppress(InvalidInput):  # without keys
        target.rekey()
    asked: list[str | None] = [*sessions] or [None]
    scopes = [key for each in asked for key in scopes_of(store, session_id=each)]
    before = [key for each in asked for key in scopes_of(target, session_id=each)]
    if not sessions and not scopes and before:
        raise InvalidInput("the store is empty, and the backup is not: remove the file first")
    found = unlisted(store, session_id=None, prefix="")
    here = [each for each in found if each.scope is None or each.scope.session_id in sessions]
    transfer.skipped += here if sessions else found
    kept = {*scopes, *(each.scope for each in transfer.skipped)}
    for key in scopes:
        _take(store, target, key, verify, transfer)
    # What cannot be listed, and nobody knows where it is, may be in any scope of the file. And a
    # token that is bound to a prefix does not see what others have.
    for key in before if None not in kept and sees_all(store) else ():
        if key not in kept:
            target.scope(*key).delete()
    return transfer.total()


def _take(store: Store, target: Store, key: ScopeKey, verify: bool, transfer: Transfer) -> None:
    """Take a scope as it is now."""
    source, into = engine_of(store), engine_of(target)
    if source is None or into is None:
        return _take_lines(store, target, key, verify, transfer)
    version, known = _version_of(source, key), _version_of(into, key)
    if version is not None and version == known and not verify:
        return transfer.count(key, snapshots=version[1])
    if transfer.move(source, into, key, mirror=True, verify=verify):
        return None
    if _version_of(into, key) is not None:
        fact = "the scope is damaged: the backup keeps what it had of it"
        return transfer.skipped.append(Finding("error", "damaged", fact, key))
    return transfer.copy_scope(store, target, key, verify=verify)


def _take_lines(
    store: Store, target: Store, key: ScopeKey, verify: bool, transfer: Transfer
) -> None:
    before = len(transfer.skipped)
    try:
        transfer.copy_scope(store, target, key, verify=verify)
    except (AlreadyExists, Conflict):  # some of it was deleted, or is damaged
        del transfer.skipped[before:]
        for _ in scope_records(store.scope(*key), skipped=transfer.skipped.append):
            pass
        if len(transfer.skipped) == before:
            target.scope(*key).delete()
            transfer.copy_scope(store, target, key, verify=verify)


def _version_of(engine: Engine, key: ScopeKey) -> tuple[int, int] | None:
    """Return what only an equal scope has; None without one, or if it cannot be read."""
    with suppress(Corrupt):
        return engine.storage.read(key, version_of)
    return None
