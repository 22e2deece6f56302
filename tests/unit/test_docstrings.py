"""What an editor shows: every public name has an example that runs, and names its arguments."""

import asyncio
import inspect
import re
import textwrap
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import limpet
from tests.cases import for_each

SYNC = (limpet.Store, limpet.Scope, limpet.Lease, limpet.Snapshot)
ASYNC = (limpet.AsyncStore, limpet.AsyncScope, limpet.AsyncLease)
CONSTANTS = {"ANY", "HEAD", "JSON", "__version__"}


def own_methods(owner: type) -> dict[str, Callable[..., Any]]:
    return {
        f"{owner.__name__}.{name}": member
        for name, member in vars(owner).items()
        if inspect.isfunction(member) and not name.startswith("_")
    }


NAMES: dict[str, Any] = {
    name: getattr(limpet, name) for name in limpet.__all__ if name not in CONSTANTS
}
METHODS = {name: each for owner in SYNC for name, each in own_methods(owner).items()}
TWINS = {name: each for owner in ASYNC for name, each in own_methods(owner).items()}


def example(documented: Any) -> str:
    """Return the code of the example in a docstring."""
    found = re.search(r"^Example:\n((?:    .*\n|\n)+)", f"{inspect.getdoc(documented)}\n", re.M)
    assert found is not None, "there is no example"
    return textwrap.dedent(found[1])


@for_each("name", [*NAMES, *METHODS])
def test_an_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = example({**NAMES, **METHODS}[name])
    store = limpet.open("memory:")
    chat = store.scope("chat-42", "planner")
    chat.save({"mood": "calm"}, id="step-7", labels={"run_id": "r-7"})
    chat.save({"mood": "bold"}, id="step-8")
    known = {"limpet": limpet, "timedelta": timedelta}
    if "await " in code or "async " in code:
        known["store"] = store.aio
        known["chat"] = store.aio.scope("chat-42", "planner")
        exec(f"async def main():\n{textwrap.indent(code, '    ')}", known)
        asyncio.run(known["main"]())  # type: ignore[operator]
    else:
        exec(code, {**known, "store": store, "chat": chat})
    store.close()


@for_each("name", [*METHODS, "open", "open_async", "jsonable"])
def test_a_docstring_says_what_each_argument_does(name: str) -> None:
    documented = METHODS.get(name) or NAMES[name]
    text = inspect.getdoc(documented) or ""
    _, _, arguments = text.partition("Args:\n")
    for argument in inspect.signature(documented).parameters:
        if argument != "self":
            assert re.search(rf"^    (\w+, )*{argument}\b.*:", arguments, re.M), argument


@for_each("name", TWINS)
def test_a_twin_says_what_it_does_and_where_more_is_said(name: str) -> None:
    text = inspect.getdoc(TWINS[name]) or ""
    first, *_ = text.splitlines()
    assert not first.startswith("Async twin")
    assert name in ("AsyncStore.run",) or "Async twin of `" in text
