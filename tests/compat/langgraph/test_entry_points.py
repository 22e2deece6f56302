"""A class of the script that was started is found by other programs, and by itself."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from limpet import InvalidInput
from limpet.compat.langgraph.classes import Allowed, refusal
from tests.cases import for_each
from tests.compat.langgraph.kit import Places

ROOT = Path(__file__).resolve().parents[3]


def start(folder: Path, *args: str, **env: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


SHOP = """
import sys
from operator import add
from typing import Annotated
import limpet
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from limpet.compat.langgraph import LimpetSaver, LimpetStore
from pydantic import BaseModel

class Item(BaseModel):
    number: int

class State(BaseModel):
    items: Annotated[list[Item], add] = []

def ask(state):
    return {"items": [Item(number=interrupt("how many?"))]}

def graph(store):
    builder = StateGraph(State).add_node("ask", ask).add_edge(START, "ask")
    return LINE

def main(given):
    with limpet.open(sys.argv[1]) as store:
        shop = graph(store)
        ended = shop.invoke(given, {"configurable": {"thread_id": "t"}})
        assert {type(each) for each in ended["items"]} == {Item}, ended
        print([each.number for each in ended["items"]])

if __name__ == "__main__":
    main(State(items=[Item(number=1)]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("strict", [False, True])
def test_the_line_of_the_readme_with_a_pydantic_state(
    places: Places, tmp_path: Path, strict: bool
) -> None:
    """In its strict mode LangGraph passes the classes, and `allow` is not needed."""
    found = re.search(r"\| LangGraph \| `(.*?)` \|", (ROOT / "README.md").read_text())
    assert found
    line = found[1].replace(", allow=State", "") if strict else found[1]
    env = {"LANGGRAPH_STRICT_MSGPACK": "true"} if strict else {}
    (tmp_path / "shop.py").write_text(SHOP.replace("LINE", line))
    (tmp_path / "later.py").write_text("import shop; shop.main(shop.Command(resume=2))")
    url = places.url("sqlite")
    assert start(tmp_path, "shop.py", url, **env) == "[1]\n"
    assert start(tmp_path, "later.py", url, **env) == "[1, 2]\n"


SPAWNED = """
import sys
from multiprocessing import get_context
import limpet
from langgraph.checkpoint.base import empty_checkpoint
from limpet.compat.langgraph import LimpetSaver
from pydantic import BaseModel

class Item(BaseModel):
    number: int

def save():
    with limpet.open(sys.argv[1]) as store:
        made = {**empty_checkpoint(), "channel_values": {"item": Item(number=1)}}
        config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        LimpetSaver(store, allow=Item).put(config, made, {}, {})

if __name__ == "__main__":
    child = get_context("spawn").Process(target=save)
    child.start()
    child.join()
"""
READER = """
import sys, limpet
from limpet.compat.langgraph import LimpetSaver
with limpet.open(sys.argv[1]) as store:
    config = {"configurable": {"thread_id": "t"}}
    try:
        LimpetSaver(store).get_tuple(config)
    except limpet.InvalidInput as refused:
        _, _, _, name, _, line, *_ = str(refused).split("`")
    exec(line)
    found = LimpetSaver(store, allow=[eval(name)]).get_tuple(config)
    print(found.checkpoint["channel_values"])
"""


@pytest.mark.slow
def test_a_spawned_process_stores_classes_under_the_name_of_the_script(
    places: Places, tmp_path: Path
) -> None:
    """So another program reads them, with what the refusal says."""
    (tmp_path / "shop.py").write_text(SPAWNED)
    (tmp_path / "reader.py").write_text(READER)
    url = places.url("sqlite")
    start(tmp_path, "shop.py", url)
    assert start(tmp_path, "reader.py", url) == "{'item': Item(number=1)}\n"


# Without processes


def run_script(monkeypatch: pytest.MonkeyPatch, path: str | None, spec: str | None = None) -> Any:
    """Return a `__main__` that has a class `Item`."""
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    if path is not None:
        main.__file__ = path
    main.__spec__ = spec and SimpleNamespace(name=spec)  # type: ignore[assignment]
    exec("class Item: __slots__ = ()", vars(main))
    return main


@for_each(
    "path, spec, name",
    [
        ("/srv/app/worker.py", None, "worker"),
        ("/srv/app/worker.py", "app.worker", "app.worker"),
        ("/srv/app/__main__.py", "app.__main__", "app.__main__"),
        ("/srv/app/__main__.py", "__main__", "__main__"),  # python app
        ("/srv/app/worker.py", "__main__", "worker"),  # python -m cProfile
        ("/srv/app/my-worker.py", None, "__main__"),
        ("/usr/bin/worker", None, "__main__"),
        ("<stdin>", None, "__main__"),
        (None, None, "__main__"),
    ],
)
def test_the_name_of_a_script(
    monkeypatch: pytest.MonkeyPatch, path: str | None, spec: str | None, name: str
) -> None:
    main = run_script(monkeypatch, path, spec)
    for allow in (main.Item, [(name, "Item")], [("__main__", "Item")]):
        allowed = Allowed(allow)
        assert allowed.name_of(main.Item) == f"{name}:Item"
        assert allowed.class_of(f"{name}:Item") is main.Item
    assert Allowed(main.Item).class_of("__main__:Item") is main.Item


def test_a_script_that_runs_is_not_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "worker.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(tmp_path)
    main = run_script(monkeypatch, str(tmp_path / "worker.py"), "app.worker")
    for allow in (main.Item, [("worker", "Item")]):
        assert Allowed(allow).class_of("worker:Item") is main.Item


@for_each(
    "stored, advice",
    [
        ("worker:Item", "list it in `allow` as `Item`"),
        ("app.worker:Item", "list it in `allow` as `Item`"),
        ("__main__:Item", "list it in `allow` as `Item`"),
        ("nowhere:Item", "import it from the module that has it here, and list it in `allow`"),
        ("os:x; y", "import it from the module that has it here, and list it in `allow`"),
    ],
)
def test_a_refusal_in_the_script_itself(
    monkeypatch: pytest.MonkeyPatch, stored: str, advice: str
) -> None:
    run_script(monkeypatch, "/srv/app/worker.py")
    fact = "a stored value is of a class that is not allowed"
    assert str(refusal(stored)) == f"{fact}: {advice}. class=`{stored}`"


def test_a_script_that_is_imported_too_has_two_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    main = run_script(monkeypatch, "/srv/worker.py")
    worker: Any = ModuleType("worker")
    monkeypatch.setitem(sys.modules, "worker", worker)
    exec("class Item: __slots__ = ()", vars(worker))
    for allow in ([main.Item, worker.Item], [worker.Item, main.Item]):
        allowed = Allowed(allow)
        assert [allowed.name_of(each) for each in allow].count("worker:Item") == 1
        for each in allow:
            assert allowed.class_of(allowed.name_of(each)) is each


def test_a_name_that_two_listed_classes_may_have_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, other = (type("Item", (), {"__module__": each, "__slots__": ()}) for each in ("a", "b"))
    assert Allowed(one).class_of("__main__:Item") is one
    assert Allowed([one, other]).class_of("__main__:Item") is None
    run_script(monkeypatch, None).Item = other  # imported from there, as a refusal advises
    assert Allowed([one, other]).class_of("__main__:Item") is other


def test_a_refusal_imports_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "trap").mkdir()
    (tmp_path / "trap" / "__init__.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(tmp_path)
    lazy: Any = ModuleType("lazy")
    lazy.__getattr__ = lambda name: pytest.fail(name)
    monkeypatch.setitem(sys.modules, "lazy", lazy)
    for name in ("trap:Item", "trap.inner:Item", "lazy:Item", "lazy:Item.Inner"):
        allowed = Allowed(Places)
        assert allowed.class_of(name) is None
        module, qualname = name.split(":")
        line = f"from {module} import {qualname.split('.')[0]}"
        assert line in str(refusal(name))
    assert "trap" not in sys.modules


def test_a_class_that_moved_is_found_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only if the module that imports it now is imported by the caller."""
    allowed = Allowed(Places)
    assert allowed.class_of("attic:Places") is None
    attic: Any = ModuleType("attic")
    attic.Places, attic.Other = Places, InvalidInput
    monkeypatch.setitem(sys.modules, "attic", attic)
    assert allowed.class_of("attic:Places") is Places
    assert allowed.class_of("attic:Other") is None
