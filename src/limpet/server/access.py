"""Who may do what: tokens, and the session prefix that a token may be bound to."""

from collections.abc import Mapping
from typing import NamedTuple

from limpet.errors import LimpetError
from limpet.model import ScopeKey


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

    def check_scope(self, scope: ScopeKey) -> ScopeKey:
        self.check_session(scope.session_id)
        return scope

    def within(self, prefix: str) -> str:
        """Return the prefix of what is both asked for and allowed."""
        if self.prefix.startswith(prefix):
            return self.prefix
        return self.check_session(prefix)

    def check_whole(self) -> None:
        if self.prefix:
            raise forbidden("this concerns the whole store, and this token is bound to a prefix")


def forbidden(why: str) -> Refused:
    return Refused(403, "Forbidden", f"{why}: use another token")


class Access:
    """Decides what a request may do. Without tokens it may do everything."""

    def grant(self, headers: Mapping[str, str]) -> Grant:
        """Return what the request's token allows, or raise Refused."""
        return Grant()
