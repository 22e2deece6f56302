"""Where the sessions of a tenant are. Pure.

A tenant's session is `tenant/session`, one of nobody just `session`. `%` and `/` inside of either
are escaped, so that whatever they hold, no session is that of another tenant, or of nobody.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from limpet.errors import InvalidInput
from limpet.model import ScopeKey

KIND = "agent"

Context: TypeAlias = Mapping[str, Any] | str | None
PrefixOf: TypeAlias = Callable[[Any], str | None]


class Tenant(NamedTuple):
    """Whose sessions are looked at: those that begin with `prefix`, which is empty for nobody's."""

    prefix: str = ""

    def scope(self, session_id: str) -> ScopeKey:
        """Return where a session is."""
        return ScopeKey(self.prefix + _escaped(session_id))

    def session_of(self, stored: str) -> str | None:
        """Return the session that is stored under a name, None if it is not this tenant's."""
        if not stored.startswith(self.prefix):
            return None
        inside = stored.removeprefix(self.prefix)
        plain = inside.replace("%2F", "/").replace("%25", "%")
        # Others may have names of their own, of which two would read as one session.
        return plain if plain and _escaped(plain) == inside else None


def check_prefix_of(prefix_of: PrefixOf | None) -> PrefixOf | None:
    """Return a function that names tenants, or None for none."""
    if prefix_of is not None and not callable(prefix_of):
        raise InvalidInput(f"prefix_of must be a function. type=`{type(prefix_of).__name__}`")
    return prefix_of


def tenant_of(context: Context, prefix_of: PrefixOf | None) -> Tenant:
    """Return the tenant that a context stands for.

    Raises:
        InvalidInput: it is not told. To take it for nobody's would show it to everybody.
    """
    named = prefix_of(context) if prefix_of is not None else _named_in(context)
    if named is None:
        return Tenant()
    if inspect.iscoroutine(named):
        named.close()
        raise InvalidInput("prefix_of must not be async")
    if not isinstance(named, str) or not named.strip():
        raise InvalidInput(f"a tenant must have a name. type=`{type(named).__name__}`")
    return Tenant(_escaped(named) + "/")


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


def _escaped(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F")
