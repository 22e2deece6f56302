"""The engine over HTTP: each method is one request to `limpet serve`.

docs/http.md is the contract, and `core/wire.py` has both directions of every record. States, notes
and metadata travel as the bytes that they are encoded as: they are put into a request, and cut out
of an answer, without being parsed.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote

import orjson

from limpet.backends.http.client import Client, NotOurs, Request, Settings
from limpet.backends.http.listen import HttpListener
from limpet.core import codec, limits, times, wire
from limpet.errors import InvalidInput, NotFound, Unavailable, Unsupported
from limpet.model import (
    ANY,
    HEAD,
    JSON,
    Expect,
    Finding,
    Note,
    Pruned,
    ScopeInfo,
    ScopeKey,
    SnapshotInfo,
    SnapshotRef,
    Stats,
)
from limpet.protocol import (
    Append,
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
    SessionAge,
    Stamp,
    Target,
    Topic,
)

T = TypeVar("T")
_Query: TypeAlias = tuple[tuple[str, str], ...]
_ETAG_CHARS_MAX = 128
_COUNT_MAX = 2**53  # what every parser of JSON keeps exact


class HttpBackend:
    """An engine whose storage is a server's."""

    blocking = True

    def __init__(self, settings: Settings, *, clock: Clock, draw: Callable[[], Stamp]) -> None:
        """Connect to a server, and ask what it can do."""
        self._client = Client(settings, clock)
        self._draw = draw
        try:
            answer: bytes = self._client.send(Request("GET", "/v1"), retry_s=0)
            about = codec.decode_foreign(answer)
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

    def _json(self, request: Request) -> Any:
        return codec.decode_foreign(self._read(request))

    def _items(self, request: Request, decode: Callable[[Any], T]) -> list[T]:
        return [decode(each) for each in self._json(request)["items"]]

    def _pages(
        self, request: Request, after: str | None, limit: int, decode: Callable[[Any], T]
    ) -> list[T]:
        """Return a page; one that is longer than the server's pages takes several requests."""
        found: list[T] = []
        while len(found) < limit:
            wanted = min(limit - len(found), limits.PAGE_ITEMS_MAX)
            more = _query(limit=str(wanted), after=after or None)
            page = self._json(request._replace(query=request.query + more))
            found += map(decode, page["items"])
            after = page["next"]
            if after is None:
                break
        return found

    def _written(
        self, request: Request, stamp: Stamp, stored: Callable[[], T | None] | None = None
    ) -> Any:
        """Return the decoded answer of a write, or what `stored` found after a lost answer."""
        headers = {**request.headers, "Limpet-Stamp": wire.stamp_text(stamp)}
        request = request._replace(headers=headers)
        answer = self._client.send(request, nonce=stamp.nonce, stored=stored)
        return codec.decode_foreign(answer) if isinstance(answer, bytes) else answer

    def _deleted(self, request: Request) -> Any:
        """Delete something. After a lost answer, the count is that of the repetition."""
        return self._written(request, self._draw(), stored=lambda: None)

    # Snapshots

    def commit(self, commit: Commit) -> SnapshotInfo:
        verb = "append" if isinstance(commit.body, Append) else "save"
        headers = _conditions(commit.expect, commit.fence)
        if commit.again:
            headers["Idempotency-Key"] = commit.stamp.nonce
        request = Request(
            "POST",
            f"/v1/scope/{verb}",
            _scope(commit.scope),
            _joined(_members(commit)),
            headers,
        )
        # A kept snapshot is found by its nonce for good. Others may have been replaced since, and
        # then a conflict of the repetition does not say whether the first attempt was stored.
        is_lasting = commit.keep and commit.replaces is None and not commit.overwrite
        stored = None if is_lasting else lambda: None
        return wire.info_of(self._written(request, commit.stamp, stored))

    def read_snapshots(self, scope: ScopeKey, ids: Sequence[str | None]) -> list[Found]:
        if len(ids) == 1:
            request = Request("GET", "/v1/scope/snapshot", _scope(scope, id=ids[0]))
            try:
                return [wire.decode_found(self._read(request))]
            except NotFound:
                return []
        if len(set(ids)) < len(ids):  # the server gives each once
            return [found for each in ids for found in self.read_snapshots(scope, [each])]
        body = codec.encode({"ids": list(ids)})
        lines = self._read(Request("POST", "/v1/scope/load_many", _scope(scope), body))
        return [_found(line) for line in lines.split(b"\n") if line]

    def read_info(self, scope: ScopeKey, snapshot_id: str | None) -> SnapshotInfo | None:
        try:
            request = Request("GET", "/v1/scope/info", _scope(scope, id=snapshot_id))
            return wire.info_of(self._json(request))
        except NotFound:
            return None

    def list_snapshots(self, query: Query, *, limit: int) -> list[SnapshotInfo]:
        labels = codec.encode(dict(query.labels)).decode() if query.labels else None
        given = _query(id=query.id, labels=labels, status=query.status)
        after = None if query.after is None else wire.seq_cursor(query.after)
        if query.scope is None:
            given += _query(prefix=query.prefix)
            return self._pages(Request("GET", "/v1/history", given), after, limit, wire.info_of)
        given += _scope(query.scope) + _query(leaves="true" if query.leaves else None)
        return self._pages(Request("GET", "/v1/scope/history", given), after, limit, wire.info_of)

    def list_ids(self, scope: ScopeKey, *, after: str, limit: int) -> list[str]:
        return self._pages(Request("GET", "/v1/scope/ids", _scope(scope)), after, limit, str)

    def find_refs(self, id_prefix: str, *, limit: int) -> list[SnapshotRef]:
        query = _query(id_prefix=id_prefix, limit=str(limit))
        return self._items(Request("GET", "/v1/refs", query), wire.some_ref_of)

    def list_sessions(self, *, prefix: str, after: str, limit: int) -> list[str]:
        return self._pages(Request("GET", "/v1/sessions", _query(prefix=prefix)), after, limit, str)

    def list_newest(self, *, prefix: str, after: SessionAge | None, limit: int) -> list[SessionAge]:
        request = Request("GET", "/v1/newest", _query(prefix=prefix))
        cursor = None if after is None else wire.age_cursor(after)
        return self._pages(request, cursor, limit, wire.age_of)

    def list_scopes(
        self,
        *,
        session_id: str | None,
        kind: str | None,
        prefix: str,
        after: ScopeKey | None,
        limit: int,
    ) -> list[ScopeInfo]:
        query = _query(session_id=session_id, kind=kind, prefix=prefix)
        cursor = None if after is None else wire.cursor_text(*after)
        return self._pages(Request("GET", "/v1/scopes", query), cursor, limit, wire.scope_info_of)

    def replace_snapshots(self, changes: Sequence[Commit]) -> int:
        count = 0
        for each in changes:
            with suppress(NotFound):
                self.commit(each)
                count += 1
        return count

    # Deleting

    def delete_snapshots(
        self,
        scope: ScopeKey,
        ids: Sequence[str],
        *,
        spare_head: bool = False,
        fence: str | None = None,
    ) -> Pruned:
        body = codec.encode({"ids": list(ids), "spare_head": spare_head})
        path = "/v1/scope/delete_snapshots"
        headers = _conditions(ANY, fence)
        return Pruned(**self._deleted(Request("POST", path, _scope(scope), body, headers)))

    def delete_scope(
        self, scope: ScopeKey, *, expect: Expect = ANY, fence: str | None = None
    ) -> int:
        headers = _conditions(expect, fence)
        return _count(self._deleted(Request("DELETE", "/v1/scope", _scope(scope), None, headers)))

    def delete_session(self, session_id: str) -> int:
        query = _query(session_id=session_id)
        return _count(self._deleted(Request("DELETE", "/v1/sessions", query)))

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
        named = {} if name is None else {"name": name}
        body = codec.encode({"on": list(on), **named})
        begin = wire.cursor_text(on[0] or "", after) if after else None
        request = Request("POST", "/v1/scope/notes/list", _scope(scope), body)
        return self._pages(request, begin, limit, wire.note_of)

    def read_notes(self, scope: ScopeKey, names: Sequence[str]) -> list[FoundNote]:
        if not names:
            return []
        body = codec.encode({"names": list(names)})
        request = Request("POST", "/v1/scope/notes/read", _scope(scope), body)
        return self._items(request, wire.found_note_of)

    def find_notes(self, query: NoteQuery, *, limit: int) -> list[FoundNote]:
        body = codec.encode({**query._asdict(), "limit": min(limit, _COUNT_MAX)})
        return self._items(Request("POST", "/v1/notes/find", (), body), wire.found_note_of)

    def list_noted(self, scope: ScopeKey, *, after: str, limit: int) -> list[str]:
        return self._pages(Request("GET", "/v1/scope/noted", _scope(scope)), after, limit, str)

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
        query = _scope(scope, name=name, on=on)
        headers = _conditions(write.expect, write.fence)
        request = Request("PUT", "/v1/scope/note", query, write.value, headers)
        answer = self._written(request, write.stamp, stored)
        return answer if isinstance(answer, Note) else wire.note_of(answer)

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
        body = b'{"changes":[%b]}' % b",".join(_joined(_change(each)) for each in changes)
        headers = _conditions(ANY, fence)
        request = Request("POST", "/v1/scope/notes", _scope(scope), body, headers)
        self._written(request, next(stamps, None) or self._draw(), stored)

    def delete_note(
        self, scope: ScopeKey, name: str, *, on: str | None, fence: str | None = None
    ) -> int:
        query = _scope(scope, name=name, on=on)
        headers = _conditions(ANY, fence)
        return _count(self._deleted(Request("DELETE", "/v1/scope/note", query, None, headers)))

    # Leases. The time is the server's, so no stamp is sent; each request may be repeated.

    def claim(self, claim: Claim) -> Hold:
        return self._lease("POST", claim)

    def renew(self, claim: Claim) -> Hold:
        return self._lease("PUT", claim)

    def _lease(self, method: str, claim: Claim) -> Hold:
        body = codec.encode(
            {"key": claim.key, "owner": claim.owner, "ttl_s": claim.ttl_us / 1_000_000}
        )
        return wire.hold_of(
            self._json(Request(method, "/v1/scope/lease", _scope(claim.scope), body))
        )

    def release(self, claim: Claim) -> None:
        self._read(Request("DELETE", "/v1/scope/lease", _scope(claim.scope, key=claim.key)))

    def read_lease(self, scope: ScopeKey, *, now: int) -> Hold | None:
        try:
            return wire.hold_of(self._json(Request("GET", "/v1/scope/lease", _scope(scope))))
        except NotFound:
            return None

    # Watching

    def read_revisions(self, targets: Sequence[Target]) -> list[str | None]:
        body = codec.encode({"targets": [wire.target_json(each) for each in targets]})
        found: list[str | None] = self._json(Request("POST", "/v1/revisions", (), body))[
            "revisions"
        ]
        return found

    def listen(self) -> Listener[Topic]:
        return HttpListener(self._client)

    # Upkeep

    def list_damage(self, scope: ScopeKey) -> list[Finding]:
        return self._items(Request("GET", "/v1/scope/damage", _scope(scope)), wire.finding_of)

    def list_unlisted(self) -> list[Finding]:
        return self._items(Request("GET", "/v1/unlisted"), wire.finding_of)

    def list_largest_heads(self, session_id: str, *, limit: int) -> list[SnapshotInfo]:
        query = _query(session_id=session_id, limit=str(limit))
        return self._items(Request("GET", "/v1/largest", query), wire.info_of)

    def read_stats(self, session_id: str | None, *, limit: int) -> Stats:
        query = _query(session_id=session_id, limit=str(limit))
        return wire.stats_of(self._json(Request("GET", "/v1/stats", query)))

    def compact(self) -> int:
        freed: int = self._json(Request("POST", "/v1/compact"))["bytes"]
        return freed

    def rekey(self, after: str, *, limit: int) -> tuple[int, str | None]:
        raise Unsupported("a server has no keys to change: run `limpet rekey` where it runs")

    def check(self, after: str, *, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        method, path = ("POST", "/v1/repair") if repair else ("GET", "/v1/check")
        page = self._json(Request(method, path, _query(after=after, limit=str(limit))))
        return [wire.finding_of(each) for each in page["items"]], page["next"]


# What requests are made of


def _query(**given: str | None) -> _Query:
    return tuple((name, value) for name, value in given.items() if value is not None)


def _scope(scope: ScopeKey, **more: str | None) -> _Query:
    return (*zip(scope._fields, scope, strict=True), *_query(**more))


def _conditions(expect: Expect, fence: str | None) -> dict[str, str]:
    headers = {} if fence is None else {"Limpet-Lease": fence}
    if expect is None:
        headers["If-None-Match"] = "*"
    elif expect is not ANY:
        # Quoted: a header cannot hold any text, and a revision is not changed by it.
        headers["If-Match"] = f'"{quote(expect)[:_ETAG_CHARS_MAX]}"'
    return headers


_Members: TypeAlias = Iterable[tuple[str, bytes]]


def _joined(members: _Members) -> bytes:
    """Return an object of encoded members."""
    return b"{%b}" % b",".join(b'"%b":%b' % (name.encode(), value) for name, value in members)


def _members(commit: Commit) -> _Members:
    """Return what a commit says that is not the default, encoded."""
    body = commit.body
    if isinstance(body, Append):
        yield "key", orjson.dumps(body.key)
        yield "items", body.items
        yield "state_bytes_max", orjson.dumps(body.state_bytes_max)
    else:
        facts: dict[str, JSON] = {
            "id": commit.id,
            "forked_from": wire.ref_json(commit.forked_from),
            "replaces": commit.replaces,
            "source": commit.source,
        }
        if commit.created_at is not None:
            facts["created_at"] = wire.time_json(times.from_us(commit.created_at))
        yield from ((name, orjson.dumps(each)) for name, each in facts.items() if each is not None)
        if commit.parent is not HEAD:
            yield "parent", orjson.dumps(commit.parent)
        for name in ("overwrite", "new_scope", "past_damage"):
            if getattr(commit, name):
                yield name, b"true"
        if not commit.head:
            yield "head", b"false"
    if not commit.keep:
        yield "keep", b"false"
    if commit.status is not None:
        yield "status", orjson.dumps(commit.status)
    yield "labels", commit.labels
    yield "metadata", commit.metadata
    if isinstance(body, Copy):
        yield "copy", b"true"
    elif isinstance(body, bytes):
        yield "state", body


def _change(change: NoteChange) -> _Members:
    yield "name", orjson.dumps(change.name)
    if change.on is not None:
        yield "on", orjson.dumps(change.on)
    if change.expect is not ANY:
        yield "expect", orjson.dumps(change.expect)
    if not isinstance(change, NoteWrite):
        yield "delete", b"true"
        return
    yield "stamp", orjson.dumps(wire.stamp_text(change.stamp))
    if change.keep is not None:
        key, value = change.keep
        yield "keep", _joined([("key", orjson.dumps(key)), ("value", value)])
    yield "value", change.value


# What answers say


def _count(answer: Any) -> int:
    count: int = answer["deleted"]
    return count


def _has_nonce(note: Note, write: NoteWrite) -> bool:
    return note.revision.endswith(f".{write.stamp.nonce}")


def _found(line: bytes) -> Found:
    if line.startswith(b'{"type":'):
        error = wire.error_of(codec.decode_foreign(line))
        raise error or Unavailable("the server ended a list with an error that is not known")
    return wire.decode_found(line)
