"""Fork and restore, each with a preview, and what `prune` would delete."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from limpet.api.store import Store
from limpet.core.operations import SCOPE_PARAMS, SESSION, SNAPSHOT, Param
from limpet.core.schema import ID, KIND, TEXT, record
from limpet.errors import AlreadyExists, Conflict, InvalidInput
from limpet.inspector import links
from limpet.inspector.page import existing, page, redirect, render, store_url
from limpet.model import ScopeKey
from limpet.server.access import Refused
from limpet.server.call import Call, Response
from limpet.views.format import address_text, visible
from limpet.views.overview import session_title
from limpet.views.preview import difference, free_name, preview_prune, scopes_to_prune

_FIELDS = {"session_id": ID, "scope_id": ID, "kind": KIND, "id": ID}
_LISTED_MAX = 100  # snapshots that would be deleted
_DAYS_MAX = 10**6


def _check_write(call: Call) -> None:
    if not call.grant.write:
        raise Refused(403, "Forbidden", "these pages only read")


def _source(store: Store, key: ScopeKey, id: str | None) -> dict[str, Any]:
    """Return the snapshot that is forked or restored, and how the head of its scope differs."""
    scope = store.scope(*key)
    snapshot, head = existing(scope.load(id)), scope.info()
    is_head = head is not None and head.id == snapshot.id
    now = None if head is None or is_head else scope.load(head.id)
    return {
        "info": snapshot,
        "head": head,
        "is_head": is_head,
        "difference": None if now is None else difference(now, snapshot),
        "title": session_title(store, key.session_id),
    }


def _body_scope(call: Call) -> ScopeKey:
    return call.allowed(call.body["session_id"], call.body["scope_id"], call.body["kind"])


# Fork.


@page("/ui/fork", *SCOPE_PARAMS, SNAPSHOT)
async def preview_fork(call: Call) -> Response:
    """What a fork would be."""
    _check_write(call)
    return await _fork_page(call, call.scope, call.id)


@page("/ui/fork", form=record({**_FIELDS, "name": TEXT}))
async def fork(call: Call) -> Response:
    """Start a new scope from a snapshot, and show it."""
    key, id, name = _body_scope(call), call.body["id"], call.body["name"].strip()
    try:
        made = await call.store.scope(*key).fork(id, scope_id=name or None)
    except AlreadyExists:
        problem = "This session has a scope with this name already. Choose another one."
        return await _fork_page(call, key, id, name, problem, status=409)
    except InvalidInput as error:
        return await _fork_page(call, key, id, name, call.grant.told(error), status=400)
    return redirect(links.url("/session", **links.address(made.key)) + "#forked")


async def _fork_page(
    call: Call,
    key: ScopeKey,
    id: str | None,
    name: str | None = None,
    problem: str | None = None,
    *,
    status: int = 200,
) -> Response:
    bits = call.driver.tools.draw().bits

    def read(store: Store) -> dict[str, Any]:
        return {**_source(store, key, id), "name": name or free_name(store, key, bits)}

    values = await call.store.run(read)
    options = [*links.kind_option(key), "--as", values["name"]]
    command = links.Command("fork", options, [address_text(key, values["info"].id)])
    words: list[str | None] = [*map(visible, command.words(store_url(call)))]
    words[words.index("--as") + 1] = None  # the script puts in what is typed
    return render(
        call, "fork.html", status, **values, problem=problem, command=command, words=words
    )


# Restore.


@page("/ui/restore", *SCOPE_PARAMS, SNAPSHOT)
async def preview_restore(call: Call) -> Response:
    """What a restore would change."""
    _check_write(call)
    return await _restore_page(call, call.scope, call.id)


@page("/ui/restore", form=record({**_FIELDS, "revision": TEXT}))
async def restore(call: Call) -> Response:
    """Make a state the head again, if the head is still the one that the preview showed."""
    key, id = _body_scope(call), call.body["id"]
    scope, expect = call.store.scope(*key), call.body["revision"] or None
    try:
        head = await scope.restore(id, expect=expect)
    except Conflict as error:
        now = await scope.info()
        has_moved = expect != (None if now is None else now.revision)
        moved = "The head moved meanwhile. This is what a restore would change now."
        problem = moved if has_moved else call.grant.told(error)
        return await _restore_page(call, key, id, problem, status=409)
    return redirect(links.url("/session", **links.address(head)) + "#restored")


async def _restore_page(
    call: Call, key: ScopeKey, id: str | None, problem: str | None = None, *, status: int = 200
) -> Response:
    values = await call.store.run(lambda store: _source(store, key, id))
    head = values["head"]
    options = links.kind_option(key) + ([] if head is None else ["--expect", head.revision])
    names = [address_text(key, values["info"].id)]
    command = links.Command("restore", options, names)
    return render(call, "restore.html", status, **values, problem=problem, command=command)


# Prune.

_NUMBER = {**TEXT, "pattern": "^[0-9]{0,9}$"}  # an empty field of a form is sent too
_KEEP_LAST = Param("keep_last", _NUMBER, "keep the newest so many of each scope")
_OLDER_THAN = Param("older_than_days", _NUMBER, "keep those that are younger")


@page("/ui/prune", SESSION, *SCOPE_PARAMS[1:], _KEEP_LAST, _OLDER_THAN)
async def preview_pruning(call: Call) -> Response:
    """What `limpet prune` would delete. Nothing is deleted here."""
    given = call.params
    session_id = call.grant.check_session(given["session_id"])
    where = {name: given.get(name) for name in ("scope_id", "kind")}
    keep_last, days = _number(given, "keep_last"), _number(given, "older_than_days")
    title = await call.store.run(lambda store: session_title(store, session_id))
    values: dict[str, Any] = {"session_id": session_id, **where, "title": title, "preview": None}
    values |= {"keep_last": keep_last, "days": days, "listed_max": _LISTED_MAX}
    if keep_last is None and days is None:
        return render(call, "prune.html", **values)
    older_than = None if days is None else timedelta(days=min(days, _DAYS_MAX))
    now_us = call.driver.tools.draw().now

    def read(store: Store) -> Any:
        return preview_prune(
            store,
            scopes_to_prune(store, session_id, where["scope_id"], where["kind"]),
            keep_last=keep_last,
            older_than=older_than,
            now_us=now_us,
            limit=_LISTED_MAX,
        )

    values["preview"] = await call.store.run(read)
    options = [] if keep_last is None else ["--keep-last", str(keep_last)]
    options += [] if days is None else ["--older-than", f"{days}d"]
    options += [] if where["kind"] is None else ["--kind", where["kind"]]
    names = [*filter(None, (session_id, where["scope_id"]))]
    values["deleting"] = links.Command("prune", options, names)
    values["command"] = links.Command("prune", ["--dry-run", *options], names)
    return render(call, "prune.html", **values)


def _number(given: Mapping[str, str], name: str) -> int | None:
    return int(given[name]) if given.get(name) else None
