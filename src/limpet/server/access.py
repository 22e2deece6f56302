"""Who may do what: tokens, the session prefix that a token may be bound to, hosts and origins.

Without tokens a request may do everything, so it must come from a program on this machine, not from
a web page: a page reaches loopback under a name of its own (DNS rebinding), or with its `Origin`.
With tokens a page gains nothing by either: a program sends its token by itself, and the cookie of
our own pages belongs to our name, and is not sent for other sites. So hosts are then checked only
if some are given. A form must come from a page of ours in any case.

Other programs on the same host receive the cookie as well, as browsers ignore ports. So it is not
the token but a ticket: an id and a time, signed with a key that is derived from the token. It is
good for the pages alone and until that time, has the rights of its token, and goes with it.
"""

import hashlib
import hmac
import logging
import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

from limpet.core import limits, wire
from limpet.errors import InvalidInput, LimpetError, Unavailable
from limpet.model import JSON, Finding, ScopeInfo, SnapshotInfo

log = logging.getLogger("limpet.server")
_TOKEN = re.compile(r"[!-~]{16,512}")
_TICKET = re.compile(r"([0-9a-f]{16})\.([0-9]{1,12})\.[0-9a-f]{64}")
TICKET_S = 12 * 3600  # a working day
_ORIGIN = re.compile(r"https?://[^/\s,]+")
# The variables in the messages of engines that say where the store is, and what follows them.
_PLACE = re.compile(
    r"[\s.]*\b(?:bucket|file|folder|host|location|path|port|profile|schema|setting|url)=`.*",
    re.DOTALL,
)
_WRITES = {"read": False, "write": True}
_METHODS = "GET, POST, PUT, DELETE"
_HEADERS = (
    "accept, authorization, content-encoding, content-type, idempotency-key, if-match,"
    " if-none-match, last-event-id, limpet-attempt, limpet-lease, limpet-stamp"
)


class Refused(LimpetError):
    """A request that is refused before anything is done, with a status of HTTP of its own."""

    def __init__(
        self, status: int, title: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.title = title
        self.headers = headers


class Grant(NamedTuple):
    """What a token allows: to write or only to read, in the sessions that begin with a prefix."""

    write: bool = True
    prefix: str = ""

    def check_session(self, session_id: str) -> str:
        if not session_id.startswith(self.prefix):
            raise forbidden("this token is bound to other sessions")
        return session_id

    def within(self, prefix: str) -> str:
        """Return the prefix of what is both asked for and allowed."""
        if self.prefix.startswith(prefix):
            return self.prefix
        return self.check_session(prefix)

    def check_whole(self) -> None:
        if self.prefix:
            raise forbidden("this concerns the whole store, and this token is bound to a prefix")

    def visible(self, info: SnapshotInfo) -> SnapshotInfo:
        """Return what may be shown of a snapshot: not the address of an origin outside."""
        origin = info.forked_from
        if origin is None or origin.scope.session_id.startswith(self.prefix):
            return info
        return replace(info, forked_from=None)

    def shown(self, value: Any) -> Any:
        """Return a value, or each of several, as far as it may be shown."""
        if not self.prefix:
            return value
        if type(value) in (list, tuple):
            return type(value)(map(self.shown, value))
        if isinstance(value, SnapshotInfo):
            return self.visible(value)
        if isinstance(value, ScopeInfo):
            return replace(value, head=self.shown(value.head))
        if isinstance(value, Finding):
            return replace(value, message=self.told(value.message))
        return value

    def told(self, message: LimpetError | str) -> str:
        """Return what may be shown of a message: with a prefix, not where the store is."""
        return _PLACE.sub("", str(message)) if self.prefix else str(message)

    def problem_json(self, error: LimpetError, status: int | None = None) -> dict[str, JSON]:
        """Return an error as a problem, as far as it may be shown."""
        found = wire.problem_json(error, status)
        if "path" not in found:  # else it is in a value of the request
            found["detail"] = self.told(found["detail"])
        return found


def forbidden(why: str) -> Refused:
    return Refused(403, "Forbidden", f"{why}: use another token")


class Tokens:
    """The tokens of a file and of a text, of which only digests are kept.

    Each line is `<token> [read|write] [prefix]`; those that begin with # are comments.
    """

    def __init__(self, file: Path | None, text: str = "") -> None:
        self._file = file
        self._given = _read_tokens(text, "$LIMPET_TOKENS")
        self._seen: object = None
        self._grants: dict[bytes, Grant] = {}
        self._ids: dict[str, bytes] = {}
        if file is not None:
            self._warn_of_readers(file)
        self._load()

    def grant(self, token: str) -> Grant | None:
        digest, found = _digest(token), None
        for each, grant in self._grants.items():  # all of them, so that the time says nothing
            if hmac.compare_digest(each, digest):
                found = grant
        return found

    def ticket(self, token: str, *, now_s: int) -> str | None:
        """Return what a browser keeps in place of a token; None if the token is not known."""
        if self.grant(token) is None:
            return None
        return _signed(_digest(token), str(now_s + TICKET_S))

    def grant_of_ticket(self, ticket: str, *, now_s: int) -> Grant | None:
        form = _TICKET.fullmatch(ticket)
        digest = None if form is None else self._ids.get(form[1])
        if form is None or digest is None or int(form[2]) <= now_s:
            return None
        is_ours = hmac.compare_digest(_signed(digest, form[2]), ticket)
        return self._grants[digest] if is_ours else None

    def refresh(self, *, anyway: bool = False) -> bool:
        """Read the file again if it has changed; return whether there are other tokens now.

        A file that cannot be used is reported in the log, and the tokens stay as they were.
        """
        if self._file is None or (not anyway and _version(self._file) == self._seen):
            return False
        before = self._grants
        try:
            self._load()
        except LimpetError as error:
            log.error("the tokens were not read again: %s", error)
        return self._grants != before

    def _load(self) -> None:
        found = dict(self._given)
        if self._file is not None:
            self._seen = _version(self._file)
            try:
                text = self._file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as cause:
                why = getattr(cause, "strerror", None) or "it is not UTF-8"
                message = f"the token file cannot be read: {why}. file=`{self._file}`"
                raise Unavailable(message) from None
            found |= _read_tokens(text, str(self._file))
        if not found:
            raise InvalidInput(
                "there is no token: write one a line, as `<token> [read|write] [prefix]`"
            )
        self._grants = found
        self._ids = {_id(each): each for each in found}

    def _warn_of_readers(self, file: Path) -> None:
        try:
            mode = file.stat().st_mode
        except OSError:
            return  # reading it reports why
        if mode & (stat.S_IRGRP | stat.S_IROTH):
            log.warning("others can read the token file: run chmod 600. file=`%s`", file)


def _version(file: Path) -> object:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("latin-1")).digest()


def _id(digest: bytes) -> str:
    return hashlib.sha256(digest).hexdigest()[:16]


def _signed(digest: bytes, until: str) -> str:
    signature = hmac.digest(digest, f"limpet pages until {until}".encode(), "sha256")
    return f"{_id(digest)}.{until}.{signature.hex()}"


def _read_tokens(text: str, where: str) -> dict[bytes, Grant]:
    found: dict[bytes, Grant] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        token, *more = line.split(None, 2)
        mode, prefix = more[0] if more else "write", more[1] if more[1:] else ""
        place = f"where=`{where}` line=`{number}`"
        if not _TOKEN.fullmatch(token):
            raise InvalidInput(f"a token has 16 to 512 visible ASCII characters. {place}")
        if mode not in _WRITES:
            raise InvalidInput(f"after a token comes read or write, then a prefix. {place}")
        if _digest(token) in found:
            raise InvalidInput(f"the token was already given. {place}")
        prefix = limits.check_text("prefix", prefix.strip(), chars_max=limits.ID_CHARS_MAX)
        found[_digest(token)] = Grant(_WRITES[mode], prefix)
    return found


@lru_cache(maxsize=256)  # each request has a host
def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class Access:
    """Decides what a request may do. Without tokens it may do everything."""

    def __init__(
        self,
        tokens: Tokens | None = None,
        *,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        write: bool = True,
    ) -> None:
        """Take the host names and the origins of web pages that are allowed besides loopback.

        `write` says whether a request may write where there are no tokens.
        """
        self.tokens = tokens
        self._open = Grant(write)
        self._hosts = frozenset(each.rstrip(".").lower() for each in hosts)
        self._origins = frozenset(each.rstrip("/").lower() for each in origins)
        for each in self._origins:
            if not _ORIGIN.fullmatch(each):
                raise InvalidInput(
                    f"an origin is written as https://name or https://name:port. origin=`{each}`"
                )

    def grant(self, headers: Mapping[str, str], ticket: str = "", *, now_s: int = 0) -> Grant:
        """Return what the request's token allows, or raise Refused.

        `ticket` is that of a page's cookie. The API takes none: a browser sends it by itself.
        """
        if self.tokens is None:
            return self._open
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            found = self.tokens.grant(token.strip())
        else:
            found = None if scheme else self.tokens.grant_of_ticket(ticket, now_s=now_s)
        if found is None:
            why = "this server needs a token: send `Authorization: Bearer <token>`"
            raise Refused(401, "Unauthorized", why, {"www-authenticate": 'Bearer realm="limpet"'})
        return found

    def check_sender(self, headers: Mapping[str, str], own: str) -> None:
        """Raise Refused if the request came under another name, or from a web page.

        `own` is the server's own origin.
        """
        name, origin = _name_of(headers["host"]), headers.get("origin")
        is_checked = self.tokens is None or self._hosts
        if is_checked and not is_loopback(name) and name not in self._hosts:
            why = f"this host is not served: allow it with --allow-host. host=`{name[:100]!a}`"
            raise Refused(403, "Forbidden", why)
        if origin is not None and origin.lower() not in (own, *self._origins):
            why = "web pages of this origin are not served: allow it with --allow-origin"
            proxy = "a proxy that ends TLS must send X-Forwarded-Proto: https"
            raise Refused(403, "Forbidden", f"{why}; {proxy}")

    def check_form(self, headers: Mapping[str, str], own: str) -> None:
        """Raise Refused unless a page of this server sent the form; browsers say so."""
        if headers.get("origin", "").lower() != own:
            raise Refused(403, "Forbidden", "a form must be sent by a page of this server")

    def cors(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers that let a web page of an allowed origin read the answer."""
        origin = headers.get("origin")
        if origin is None or origin.lower() not in self._origins:
            return {}
        return {
            "access-control-allow-origin": origin,
            "access-control-expose-headers": "etag, retry-after, allow",
            "vary": "origin",
        }

    def preflight(self) -> dict[str, str]:
        """Return what a web page of an allowed origin may send."""
        return {
            "access-control-allow-methods": _METHODS,
            "access-control-allow-headers": _HEADERS,
            "access-control-max-age": "600",
        }


def own_origin(scheme: str, headers: Mapping[str, str]) -> str:
    """Return the origin of this server's pages, as the browser that sent the request names it.

    A proxy in front that ends TLS says so in X-Forwarded-Proto, which no web page can send.
    """
    forwarded = headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
    is_secure = "https" in (scheme, forwarded)
    return f"{'https' if is_secure else 'http'}://{headers['host'].lower()}"


def cookie_name(own: str) -> str:
    """Return the name of the cookie: it has the port, since all ports of a host share cookies."""
    port = own.rpartition(":")[2]
    name = f"limpet-{port}" if port.isascii() and port.isdigit() else "limpet"
    # Browsers take this prefix from the host itself alone, and only over TLS.
    return f"__Host-{name}" if own.startswith("https:") else name


def ticket_of(headers: Mapping[str, str], own: str) -> str:
    """Return the ticket in the cookie of the pages, or an empty text."""
    wanted = cookie_name(own)
    for each in headers.get("cookie", "").split(";"):
        name, _, value = each.strip().partition("=")
        if name == wanted:
            return value
    return ""


def _name_of(host: str) -> str:
    """Return the name in a Host header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".").lower()
