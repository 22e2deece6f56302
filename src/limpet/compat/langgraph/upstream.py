"""The private names of other packages that we use, in one place.

`tests/compat/langgraph/test_upstream.py` says which of them moved, after an upgrade.
"""

from inspect import unwrap
from typing import Any

from langchain_core.load import dumpd, load
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_TYPES as SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel

lc_dump = dumpd
lc_load: Any = unwrap(load)
"""Without the warning that it is in beta, which users can do nothing about."""

DELTA_SNAPSHOT = ("langgraph.checkpoint.serde.types", "_DeltaSnapshot")
"""Module and name of the class of values that a delta channel stores now and then."""


def allowed_modules(serde: Any) -> set[tuple[str, ...]]:
    """Return the classes that LangGraph's serializer was told to allow, as (module, name)."""
    found = getattr(serde, "_allowed_msgpack_modules", None)
    return found if isinstance(found, set) else set()


def allows_all(serde: JsonPlusSerializer) -> bool:
    """Return whether the serializer imports and calls whatever stored bytes name."""
    return getattr(serde, "_allowed_msgpack_modules", None) is True


LEASE = "__pregel_limpet_lease"
"""Where the config of a run holds its lease; LangGraph hides the keys that begin like this."""

_RUNTIME = "__pregel_runtime"
_TASK_ID = "__pregel_task_id"


def run_of(config: Any) -> object | None:
    """Return an object that only one run has; None outside a run, as in `get_state`."""
    runtime: object | None = config["configurable"].get(_RUNTIME)
    control: object | None = getattr(runtime, "control", None)
    return runtime if control is None else control


def is_root_run(config: Any) -> bool:
    """Return whether the config is that of a run, and not of a subgraph or of a node in it."""
    return run_of(config) is not None and _TASK_ID not in config["configurable"]


def is_comparing(config: Any) -> bool:
    """Return whether the latest is only read to compare it with the one that was addressed."""
    return config["configurable"].get("checkpoint_id", "") is None


# The parts of a pydantic model, which these set without validating them.
set_fields, set_fields_set, set_extra, set_private = (
    BaseModel.__dict__[name].__set__
    for name in (
        "__dict__",
        "__pydantic_fields_set__",
        "__pydantic_extra__",
        "__pydantic_private__",
    )
)
