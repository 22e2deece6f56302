"""What each operation of an engine does alike: it needs an open one, and a Corrupt says where."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from functools import wraps
from inspect import signature, unwrap
from typing import Any, TypeVar

from limpet.core.encryption import WrongKeys
from limpet.errors import CLOSED, Corrupt, InvalidInput, LimpetError
from limpet.model import ScopeKey
from limpet.protocol import METHODS, Commit, Copy, Target

E = TypeVar("E", bound=type[Any])

SALVAGE = "docs/check.md#salvage"
_ADVICE = f"run `limpet check`, and see {SALVAGE}"


def located(engine: E) -> E:
    """Decorate an engine: no operation works once it is `closed`, and a Corrupt is `explained`.

    An engine that knows more of a scope than it has stored has a method `distrust` to forget it.
    """
    for name in METHODS:
        setattr(engine, name, _located(getattr(engine, name)))
    return engine


def explained(error: Corrupt, about: Target | None = None) -> Corrupt:
    """Return an error with its scope and id, and with the way out in its message.

    A copy: what a cache holds, or several threads wait for, is raised more than once.
    """
    found = copy(error)
    fact, _, names = str(error).partition(". ")
    if not isinstance(error, WrongKeys) and _ADVICE not in fact:  # those have advice of their own
        fact = f"{fact}: {_ADVICE}"
    if error.scope is None and about is not None:
        found.scope, found.id = about.scope, error.id or about.id
        names += f" session=`{about.scope.session_id}` scope=`{about.scope.scope_id}`"
        if found.id is not None and " id=`" not in f" {names}":
            names += f" id=`{found.id}`"
    found.args = (f"{fact}. {names.strip()}" if names else fact,)
    return found.with_traceback(error.__traceback__)


def _located(operation: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(operation)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        if self.closed:
            raise InvalidInput(CLOSED)
        try:
            return operation(self, *args, **options)
        except Corrupt as error:
            asked = signature(operation).bind(self, *args, **options).arguments
            about = _damaged(self, _targets(asked))
            if about is not None and hasattr(self, "distrust"):
                self.distrust(about.scope)
            raise explained(error, about) from error.__cause__

    return call


def _targets(asked: Mapping[str, Any]) -> list[Target]:
    """Return what a call is about, by the names of its arguments; the id None is the head."""
    match asked:
        case {"scope": ScopeKey() as scope, "ids": [_, *_] as ids}:
            return [Target(scope, each) for each in ids]
        case {"scope": ScopeKey() as scope}:
            id = asked.get("snapshot_id") or asked.get("on")
            return [Target(scope, id if isinstance(id, str) else None)]
        case {"changes": changes}:
            return [_target(each) for each in changes]
    return [_target(one) for one in asked.values() if hasattr(one, "scope") and one.scope]


def _target(one: Any) -> Target:
    if isinstance(one, Commit):
        if isinstance(one.body, Copy) and one.forked_from is not None:
            return Target(*one.forked_from)
        return Target(one.scope, one.id if one.overwrite or one.replaces else None)
    return Target(one.scope, getattr(one, "on", None) or getattr(one, "id", None))


def _damaged(engine: Any, targets: list[Target]) -> Target | None:
    """Return which of these cannot be read; where it is not one of them, only the scope."""
    if not targets or (len(targets) == 1 and targets[0].id is not None):
        return targets[0] if targets else None
    read_snapshots, read_info = map(unwrap, (type(engine).read_snapshots, type(engine).read_info))
    for scope, id in targets:
        try:
            read_snapshots(engine, scope, [id])
        except Corrupt:
            with suppress(LimpetError):
                if id is None and (head := read_info(engine, scope, None)) is not None:
                    id = head.id
            return Target(scope, id)
        except LimpetError:
            break
    return Target(targets[0].scope)
