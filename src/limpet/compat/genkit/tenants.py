"""The sessions of each tenant. Pure.

The session of a tenant is stored as `tenant/session`, one without a tenant as `session`. `%` and
`/` inside either name are escaped, so no name can reach the session of another tenant.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from limpet.compat.wire import escaped, unescaped
from limpet.errors import InvalidInput
from limpet.model import ScopeKey

KIND = "agent"

Context: TypeAlias = Mapping[str, Any] | str | None
PrefixOf: TypeAlias = Callable[[Any], str | None]


class Tenant(NamedTuple):
    """A tenant: its stored sessions begin with `prefix`, which is empty for no tenant."""

    prefix: str = ""

    def scope(self, session_id: str) -> ScopeKey:
        return ScopeKey(self.prefix + escaped(session_id))

    def session_of(self, stored: str) -> str | None:
        """Return the session of a stored name, None if it is not this tenant's."""
        if not stored.startswith(self.prefix):
            return None
        return unescaped(stored.removeprefix(self.prefix))


def check_prefix_of(prefix_of: PrefixOf | None) -> PrefixOf | None:
    if prefix_of is not None and not callable(prefix_of):
        raise InvalidInput(f"prefix_of must be a function. type=`{type(prefix_of).__name__}`")
    return prefix_of


def tenant_of(context: Context, prefix_of: PrefixOf | None) -> Tenant:
    """Return the tenant of a context.

    Raises:
        InvalidInput: the context names no tenant. Without one, every caller would see the session.
    """
    named = prefix_of(context) if prefix_of is not None else _named_in(context)
    if named is None:
        return Tenant()
    if inspect.iscoroutine(named):
        named.close()
        raise InvalidInput("prefix_of must not be async")
    if not isinstance(named, str) or not named.strip():
        raise InvalidInput(f"a tenant must have a name. type=`{type(named).__name__}`")
    return Tenant(escaped(named) + "/")


def _named_in(context: Context) -> object:
    if context is None or isinstance(context, str):
        return context
    if not isinstance(context, Mapping):
        raise InvalidInput(f"a context must be a mapping. type=`{type(context).__name__}`")
    if not context:
        return None
    auth = context.get("auth")
    uid = auth.get("uid") if isinstance(auth, Mapping) else None
    if uid is None:
        raise InvalidInput("the context has no auth.uid: give the store a prefix_of")
    return uid
