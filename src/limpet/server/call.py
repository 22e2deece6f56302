"""One request, checked: its parameters, its conditions, what its token allows; and answers."""

import hashlib
import inspect
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Any, NamedTuple

from limpet.api.opened import ScopeContext
from limpet.api.store import AsyncStore
from limpet.api.verbs import Work
from limpet.core import codec, limits, wire
from limpet.core.operations import JSON_TYPE, Operation, Param
from limpet.core.schema import check
from limpet.errors import Corrupt, InvalidInput
from limpet.model import ANY, JSON, Expect, Note, ScopeKey, SnapshotInfo
from limpet.protocol import Backend, Stamp
from limpet.server.access import Access, Grant

_ETAG = re.compile(r'"([\x21\x23-\x7e]{1,128})"')
_KEY_CHARS_MAX = 255
_LIMIT_DEFAULT = 100
_CHECKED = ("scope", "prefix", "limit", "expect", "fence")  # arguments that are properties below

FORM_TYPE = "application/x-www-form-urlencoded"
PROBLEM_TYPE = "application/problem+json"

# What operations return


class Answer(NamedTuple):
    """A record, encoded, and its revision."""

    body: bytes
    revision: str | None = None


class Listing(NamedTuple):
    """A list: how a page of it is read, after a place and with a limit."""

    fetch: Callable[[Backend, Any, int], list[Any]]


class Stream(NamedTuple):
    """An answer that goes on: its parts as they come.

    One that is `endless` ends when the server stops; `weight` is its share of what may be open.
    Lines of JSON that are cut off end with a problem.
    """

    parts: AsyncGenerator[bytes, None]
    media_type: str
    endless: bool = False
    weight: int = 1


class Response:
    """Headers and a body, or parts that go on."""

    def __init__(
        self,
        status: int,
        body: bytes | Stream = b"",
        media_type: str = JSON_TYPE,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.body = body
        self.headers = {
            "content-type": body.media_type if isinstance(body, Stream) else media_type,
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
            **(headers or {}),
        }


def read_params(params: Mapping[str, Param], given: list[tuple[str, str]]) -> dict[str, Any]:
    """Return the checked parameters of a query, or raise InvalidInput."""
    found: dict[str, Any] = {name: [] for name, each in params.items() if each.many}
    for name, text in given:
        param = params.get(name)
        if param is None:
            known = ", ".join(sorted(params)) or "none"
            raise InvalidInput(f"there is no such parameter here. name=`{name!a}` known=`{known}`")
        value = _parsed(param, text)
        check(value, param.schema, f"/{name}")
        if param.many:
            found[name].append(value)
        elif name in found:
            raise InvalidInput(f"the parameter is given twice. name=`{name}`")
        else:
            found[name] = value
    for name, param in params.items():
        if param.required and name not in found:
            raise InvalidInput(f"the parameter is missing: {param.what}. name=`{name}`")
    return found


def _parsed(param: Param, text: str) -> JSON:
    kind = param.schema.get("type")
    if kind == "integer" and re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    if kind == "boolean" and text in ("true", "false"):
        return text == "true"
    return text


class Call:
    """A request as an operation gets it."""

    def __init__(
        self,
        operation: Operation,
        store: AsyncStore,
        grant: Grant,
        params: dict[str, Any],
        headers: Mapping[str, str],
        access: Access,
        own: str,
    ) -> None:
        self.operation = operation
        self.access = access
        self.own = own  # the origin of this server's pages
        self.store = store
        self.driver = store.driver
        self.grant = grant
        self.params = params
        self.headers = headers
        self.body: Any = None
        self.fingerprint = ""  # of a write that may be sent again

    @property
    def scope(self) -> ScopeKey:
        given = self.params
        return self.allowed(
            given["session_id"], given.get("scope_id", "main"), given.get("kind", "agent")
        )

    def allowed(self, session_id: str, scope_id: str, kind: str) -> ScopeKey:
        """Return a scope that the token may use, or raise InvalidInput or Refused."""
        scope = limits.check_scope(session_id, scope_id, kind)
        self.grant.check_session(scope.session_id)
        return scope

    @property
    def id(self) -> str | None:
        """The snapshot, None for the head."""
        return self.params.get("id")

    @property
    def prefix(self) -> str:
        return self.grant.within(self.params.get("prefix", ""))

    @property
    def limit(self) -> int:
        """The length of a page, or of a list that has no pages."""
        asked: int = self.params.get("limit", _LIMIT_DEFAULT)
        return min(asked, limits.PAGE_ITEMS_MAX)

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        try:
            found = codec.decode(self.params.get("labels", "{}").encode())
        except Corrupt:
            raise InvalidInput('labels is a JSON object, as in {"run_id": "r-7"}') from None
        return tuple(limits.check_labels(found).items())

    @property
    def expect(self) -> Expect:
        """What `If-Match` or `If-None-Match` compare; ANY without them."""
        match, none = self.headers.get("if-match"), self.headers.get("if-none-match")
        if match is not None and none is not None:
            raise InvalidInput("give If-Match or If-None-Match, not both")
        if none is not None:
            if none.strip() != "*":
                raise InvalidInput("a write takes `If-None-Match: *`: there must be none yet")
            return None
        return ANY if match is None else etag_of(match)

    @property
    def fence(self) -> str | None:
        """The key of the lease that the scope must still carry."""
        return self.headers.get("limpet-lease")

    @property
    def again(self) -> bool:
        """Whether the same write may already be stored, its answer lost."""
        return "idempotency-key" in self.headers and self.headers.get("limpet-attempt") != "1"

    @property
    def repeat_key(self) -> str | None:
        """What is the same in a request that is sent again."""
        stamp, key = self.headers.get("limpet-stamp"), self.headers.get("idempotency-key")
        if key is not None and not 1 <= len(key) <= _KEY_CHARS_MAX:
            raise InvalidInput(f"an Idempotency-Key has 1 to {_KEY_CHARS_MAX} characters")
        return key if stamp is None else wire.stamp_of(stamp).nonce

    @property
    def context(self) -> ScopeContext:
        """The scope for a verb, which draws the client's stamp, if it sent one."""
        tools = self.driver.tools._replace(draw=self.stamp)
        return ScopeContext(self.scope, tools, fence=self.fence)

    def stamp(self) -> Stamp:
        """Return the time and the random bits of a write: the client's, or drawn here."""
        given, key = self.headers.get("limpet-stamp"), self.headers.get("idempotency-key")
        drawn = self.driver.tools.draw()
        if given is not None:
            stamp = wire.stamp_of(given)
            return stamp._replace(now=min(stamp.now, drawn.now))
        if key is None:
            return drawn
        text = f"{key} {self.fingerprint}"
        return drawn._replace(nonce=hashlib.sha256(text.encode()).hexdigest()[:16])

    def arguments(self, parameters: Iterable[inspect.Parameter]) -> dict[str, Any]:
        """Return the arguments of a method of the backend: what was sent under their names.

        One that names no session concerns the whole store.
        """
        known = {**self.params, **(self.body if isinstance(self.body, dict) else {})}
        wanted = {each.name: each for each in parameters}
        if wanted.keys().isdisjoint(("scope", "session_id", "prefix")):
            self.grant.check_whole()
        if known.get("session_id") is not None:
            self.grant.check_session(known["session_id"])
        given = {}
        for name, each in wanted.items():
            if name in _CHECKED:
                given[name] = getattr(self, name)
            elif name in known or each.default is each.empty:
                given[name] = known.get(name)
        return given

    async def ask(self, work: Work[Any]) -> Answer | None:
        """Return what the backend answers, encoded in the thread that asks it."""
        return await self.driver.run(lambda backend: self.answer(work(backend)))

    def answer(self, value: Any) -> Answer | None:
        """Return a value as the JSON of this operation, as far as the token may see it."""
        if value is None:
            return None
        encoded = codec.encode(self.operation.result.to_json(self.grant.shown(value)))
        return Answer(encoded, value.revision if isinstance(value, SnapshotInfo | Note) else None)

    def has_current(self, revision: str) -> bool:
        """Return whether a reader already has this revision."""
        given = self.headers.get("if-none-match", "")
        return given.strip() == "*" or revision in _ETAG.findall(given)


def etag_of(text: str) -> str:
    found = _ETAG.fullmatch(text.strip())
    if found is None:
        raise InvalidInput('If-Match takes one revision in quotes, as in `If-Match: "5.0.9f3a"`')
    return found[1]
