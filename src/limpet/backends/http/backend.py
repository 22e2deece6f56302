"""The engine over HTTP: each method is one request to `limpet serve`.

docs/http.md is the contract; `core/operations.py` has every operation, `core/wire.py` both
directions of every record. States, notes and metadata travel as the bytes that they are encoded as:
they are put into a request, and cut out of an answer, without being parsed.
"""

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote

import orjson
from orjson import Fragment

from limpet.backends.http.client import Client, HttpListener, NotOurs, Request, Settings
from limpet.core import codec, limits, times, wire
from limpet.core.operations import NAMED, OPERATIONS
from limpet.errors import InvalidInput, NotFound, Unavailable, Unsupported
from limpet.model import ANY, Expect, Finding, Note, ScopeKey, SnapshotInfo
from limpet.protocol import (
    Append,
    Backend,
    Claim,
    Clock,
    Commit,
    Copy,
    Found,
    FoundNote,
    Hold,
    Listener,
    NoteChange,
    NoteQuery,
    NoteWrite,
    Query,
    Stamp,
    Target,
    Topic,
)

P = ParamSpec("P")
T = TypeVar("T")
_ETAG_CHARS_MAX = 128
_COUNT_MAX = 2**53  # what every parser of JSON keeps exact
_METHODS = {each.backend: each.name for each in OPERATIONS if each.backend}


def _remote(
    method: Callable[Concatenate[Backend, P], T],
) -> Callable[Concatenate["HttpBackend", P], T]:
    """Return a method of an engine as the operation that it is: its arguments are what is sent."""
    name, signature = _METHODS[method.__name__], inspect.signature(method)

    def remote(self: "HttpBackend", /, *args: P.args, **options: P.kwargs) -> T:
        given = signature.bind(self, *args, **options).arguments
        ask: Callable[..., Any] = self._ask if NAMED[name].cursor is None else self._pages
        answer: T = ask(name, **{each: value for each, value in given.items() if each != "self"})
        return answer

    return remote


class HttpBackend:
    """An engine whose storage is a server's."""

    blocking = True

    def __init__(self, settings: Settings, *, clock: Clock, draw: Callable[[], Stamp]) -> None:
        """Connect to a server, and ask what it can do."""
        self._client = Client(settings, clock)
        self._draw = draw
        try:
            about = codec.decode_foreign(self._client.send(_request("about"), retry_s=0))
            if not isinstance(about, dict) or about.get("server") != "limpet":
                raise InvalidInput(f"this is not a limpet server. url=`{settings.url}`")
            self.capabilities = frozenset[str](about["capabilities"])
        except NotOurs as error:
            self._client.close()
            raise InvalidInput(str(error)) from error
        except BaseException:
            self._client.close()
            raise

    def close(self) -> None:
        self._client.close()

    # Requests

    def _read(self, request: Request) -> bytes:
        found: bytes = self._client.send(request)
        return found

    def _ask(self, name: str, /, **given: Any) -> Any:
        """Return the result of an operation.

        A write that is sent again is known by its stamp. After a lost answer, what it counts is
        that of the repetition.
        """
        operation, request = NAMED[name], _request(name, **given)
        if operation.writes:
            answer = self._written(request, self._draw(), lambda: None)
        else:
            answer = codec.decode_foreign(self._read(request))
        return operation.result.of_json(answer)

    def _existing(self, name: str, /, **given: Any) -> Any:
        try:
            return self._ask(name, **given)
        except NotFound:
            return None

    def _pages(self, name: str, /, *, after: Any, limit: int, **given: Any) -> list[Any]:
        """Return a page; one that is longer than the server's pages takes several requests."""
        operation, found = NAMED[name], list[Any]()
        cursor = operation.cursor
        if cursor is None:
            raise TypeError(f"this operation is no list. name=`{name}`")
        place = None if after == cursor.begin else cursor.write(after)
        while len(found) < limit:
            wanted = min(limit - len(found), limits.PAGE_ITEMS_MAX)
            request = _request(name, **given, limit=wanted, after=place)
            page = codec.decode_foreign(self._read(request))
            found += map(operation.result.of_json, page["items"])
            place = page["next"]
            if place is None:
                break
        return found

    def _written(
        self, request: Request, stamp: Stamp, stored: Callable[[], Any] | None = None
    ) -> Any:
        """Return the decoded answer of a write, or what `stored` found after a lost answer."""
        headers = {**request.headers, "Limpet-Stamp": wire.stamp_text(stamp)}
        request = request._replace(headers=headers)
        answer = self._client.send(request, nonce=stamp.nonce, stored=stored)
        return codec.decode_foreign(answer) if isinstance(answer, bytes) else answer

    # What is one operation

    list_sessions = _remote(Backend.list_sessions)
    list_newest = _remote(Backend.list_newest)
    list_scopes = _remote(Backend.list_scopes)
    list_ids = _remote(Backend.list_ids)
    list_noted = _remote(Backend.list_noted)
    list_damage = _remote(Backend.list_damage)
    list_unlisted = _remote(Backend.list_unlisted)
    list_largest_heads = _remote(Backend.list_largest_heads)
    find_refs = _remote(Backend.find_refs)
    read_notes = _remote(Backend.read_notes)
    read_stats = _remote(Backend.read_stats)
    delete_snapshots = _remote(Backend.delete_snapshots)
    delete_scope = _remote(Backend.delete_scope)
    delete_session = _remote(Backend.delete_session)
    delete_note = _remote(Backend.delete_note)
    compact = _remote(Backend.compact)

    # Snapshots

    def commit(self, commit: Commit) -> SnapshotInfo:
        request = _request(
            "append" if isinstance(commit.body, Append) else "save",
            scope=commit.scope,
            expect=commit.expect,
            fence=commit.fence,
            body=orjson.dumps(_members(commit)),
        )
        if commit.again:
            headers = {**request.headers, "Idempotency-Key": commit.stamp.nonce}
            request = request._replace(headers=headers)
        # A kept snapshot is found by its nonce for good. Others may have been replaced since, and
        # then a conflict of the repetition does not say whether the first attempt was stored.
        is_lasting = commit.keep and commit.replaces is None and not commit.overwrite
        stored = None if is_lasting else lambda: None
        return wire.info_of(self._written(request, commit.stamp, stored))

    def replace_snapshots(self, changes: Sequence[Commit]) -> int:
        count = 0
        for each in changes:
            with suppress(NotFound):
                self.commit(each)
                count += 1
        return count

    def read_snapshots(self, scope: ScopeKey, ids: Sequence[str | None]) -> list[Found]:
        if len(ids) == 1:
            try:
                return [wire.decode_found(self._read(_request("load", scope=scope, id=ids[0])))]
            except NotFound:
                return []
        if len(set(ids)) < len(ids):  # the server gives each once
            return [found for each in ids for found in self.read_snapshots(scope, [each])]
        lines = self._read(_request("load_many", scope=scope, ids=list(ids)))
        return [_found(line) for line in lines.split(b"\n") if line]

    def read_info(self, scope: ScopeKey, snapshot_id: str | None) -> SnapshotInfo | None:
        found: SnapshotInfo | None = self._existing("info", scope=scope, id=snapshot_id)
        return found

    def list_snapshots(self, query: Query, *, limit: int) -> list[SnapshotInfo]:
        labels = codec.encode(dict(query.labels)).decode() if query.labels else None
        given: dict[str, Any] = {"id": query.id, "labels": labels, "status": query.status}
        given |= {"after": query.after, "limit": limit}
        if query.scope is None:
            return self._pages("history", prefix=query.prefix, **given)
        return self._pages("scope_history", scope=query.scope, leaves=query.leaves or None, **given)

    # Notes

    def list_notes(
        self,
        scope: ScopeKey,
        *,
        on: Sequence[str | None],
        name: str | None,
        after: str,
        limit: int,
    ) -> list[Note]:
        given = {"scope": scope, "on": list(on), **({} if name is None else {"name": name})}
        place = [on[0] or "", after] if after else None
        return self._pages("list_many_notes", **given, after=place, limit=limit)

    def find_notes(self, query: NoteQuery, *, limit: int) -> list[FoundNote]:
        given = {**query._asdict(), "limit": min(limit, _COUNT_MAX)}
        found: list[FoundNote] = self._ask("find_notes", **given)
        return found

    def write_note(self, write: NoteWrite) -> Note:
        scope, name, on = write.scope, write.name, write.on

        def stored() -> Note | None:
            found = self.list_notes(scope, on=[on], name=name, after="", limit=1)
            return found[0] if found and _has_nonce(found[0], write) else None

        if write.keep is not None:  # only a change among others has it
            self.write_notes([write])
            note = stored()
            if note is None:
                raise Unavailable("the note was written, and others have changed it since")
            return note
        request = _request(
            "write_note",
            scope=scope,
            name=name,
            on=on,
            expect=write.expect,
            fence=write.fence,
            body=write.value,
        )
        answer = self._written(request, write.stamp, stored)
        written: Note = answer if isinstance(answer, Note) else wire.NOTE.of_json(answer)
        return written

    def write_notes(self, changes: Sequence[NoteChange]) -> None:
        if not changes:
            return

        def stored() -> bool | None:
            """Return True if all changes are there, by the nonces of what was written."""
            for each in changes:
                found = self.list_notes(scope, on=[each.on], name=each.name, after="", limit=1)
                if isinstance(each, NoteWrite):
                    if not found or not _has_nonce(found[0], each):
                        return None
                elif found:
                    return None
            return True

        scope = changes[0].scope
        stamps = (each.stamp for each in changes if isinstance(each, NoteWrite))
        fence = next((each.fence for each in changes if each.fence is not None), None)
        body = orjson.dumps({"changes": [_change(each) for each in changes]})
        request = _request("write_notes", scope=scope, fence=fence, body=body)
        self._written(request, next(stamps, None) or self._draw(), stored)

    # Leases. The time is the server's, so no stamp is sent; each request may be repeated.

    def claim(self, claim: Claim) -> Hold:
        return self._lease("claim", claim)

    def renew(self, claim: Claim) -> Hold:
        return self._lease("renew", claim)

    def _lease(self, name: str, claim: Claim) -> Hold:
        ttl_s = claim.ttl_us / 1_000_000
        request = _request(name, scope=claim.scope, key=claim.key, owner=claim.owner, ttl_s=ttl_s)
        held: Hold = wire.HOLD.of_json(codec.decode_foreign(self._read(request)))
        return held

    def release(self, claim: Claim) -> None:
        self._read(_request("release", scope=claim.scope, key=claim.key))

    def read_lease(self, scope: ScopeKey, *, now: int) -> Hold | None:
        found: Hold | None = self._existing("read_lease", scope=scope)
        return found

    # Watching

    def read_revisions(self, targets: Sequence[Target]) -> list[str | None]:
        named = [wire.target_json(each) for each in targets]
        found: list[str | None] = self._ask("revisions", targets=named)
        return found

    def listen(self) -> Listener[Topic]:
        return HttpListener(self._client)

    # Upkeep

    def rekey(self, after: str, *, limit: int) -> tuple[int, str | None]:
        raise Unsupported("a server has no keys to change: run `limpet rekey` where it runs")

    def check(self, after: str, *, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        name = "repair" if repair else "check"
        found: tuple[list[Finding], str | None] = self._ask(name, after=after, limit=limit)
        return found


# What requests are made of


def _request(
    name: str,
    /,
    *,
    scope: ScopeKey | None = None,
    expect: Expect = ANY,
    fence: str | None = None,
    body: bytes | None = None,
    **given: Any,
) -> Request:
    """Return the request of an operation; what is no parameter of it is a member of its body."""
    operation = NAMED[name]
    params = {} if scope is None else scope._asdict()
    members = {}
    for each, value in given.items():
        if each not in operation.params:
            members[each] = value
        elif value is not None:
            params[each] = str(value).lower() if isinstance(value, bool) else str(value)
    if body is None and operation.body is not None:
        body = codec.encode(members)
    headers = {} if fence is None else {"Limpet-Lease": fence}
    if expect is None:
        headers["If-None-Match"] = "*"
    elif expect is not ANY:
        # Quoted: a header cannot hold any text, and a revision is not changed by it.
        headers["If-Match"] = f'"{quote(expect)[:_ETAG_CHARS_MAX]}"'
    return Request(operation.method, operation.path, tuple(params.items()), body, headers)


_APPENDED = ("status", "keep")
_SAVED = (
    *_APPENDED,
    *("id", "parent", "head", "overwrite", "replaces", "new_scope", "source", "past_damage"),
)
_DEFAULTS = Commit._field_defaults  # a status has none, and is left out if it is None


def _members(commit: Commit) -> dict[str, Any]:
    """Return what a commit says that is not the default."""
    body = commit.body
    found: dict[str, Any] = {
        "labels": Fragment(commit.labels),
        "metadata": Fragment(commit.metadata),
    }
    names = _APPENDED if isinstance(body, Append) else _SAVED
    given = {name: getattr(commit, name) for name in names}
    found |= {name: value for name, value in given.items() if value != _DEFAULTS.get(name)}
    if isinstance(body, Append):
        appended = {"key": body.key, "items": Fragment(body.items)}
        return found | appended | {"state_bytes_max": body.state_bytes_max}
    if commit.forked_from is not None:
        found["forked_from"] = wire.ref_json(commit.forked_from)
    if commit.created_at is not None:
        found["created_at"] = wire.time_json(times.from_us(commit.created_at))
    return found | ({"copy": True} if isinstance(body, Copy) else {"state": Fragment(body)})


def _change(change: NoteChange) -> dict[str, Any]:
    found: dict[str, Any] = {"name": change.name}
    if change.on is not None:
        found["on"] = change.on
    if change.expect is not ANY:
        found["expect"] = change.expect
    if not isinstance(change, NoteWrite):
        return found | {"delete": True}
    if change.keep is not None:
        key, value = change.keep
        found["keep"] = {"key": key, "value": Fragment(value)}
    return found | {"stamp": wire.stamp_text(change.stamp), "value": Fragment(change.value)}


# What answers say


def _has_nonce(note: Note, write: NoteWrite) -> bool:
    return note.revision.endswith(f".{write.stamp.nonce}")


def _found(line: bytes) -> Found:
    if line.startswith(b'{"type":'):
        error = wire.error_of(codec.decode_foreign(line))
        raise error or Unavailable("the server ended a list with an error that is not known")
    return wire.decode_found(line)
