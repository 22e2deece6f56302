"""Stored bytes are data: nothing in them is run, imported or unpickled."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import InvalidInput
from tests import audit

SRC = Path(limpet.__file__).parent

# Calls that run or build what bytes say. `marshal.dumps` and `pickle.dumps` only write.
RUNS = {
    *("eval", "exec", "compile", "__import__", "os.system", "os.popen"),
    *("pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.load", "marshal.loads"),
}
MODULES = {
    *("pickle", "shelve", "dill", "cloudpickle", "joblib", "yaml", "jsonpickle"),
    *("code", "codeop", "runpy"),
}
SUSPECT = re.compile(
    r"\b(import_module|shell|eval|exec|__import__|pickle|marshal|os\.system|os\.popen)\b"
    rf"|(?<!\.)\bcompile\(|\b(import|from) ({'|'.join(MODULES)})\b"
)

# Each import by a name, and why the name is not that of stored data.
IMPORTS = {
    "cli/__init__.py": "the names of our extras",
    "cli/_app.py": "the names of our verbs",
    "cli/transfer.py": "a serializer that the caller names on the command line",
    "compat/ag2.py": "AG2's own modules, and those that the caller gives",
    "compat/langgraph/serde.py": "names on the allow-list",
    "compat/langgraph/classes.py": "names on the allow-list",
    "compat/langgraph/tags.py": "our own list of modules",
}
READ_BACK = {
    "testing/conformance/comfort.py": "errors that the test itself has pickled",
    "compat/langgraph/messages.py": "a cache in memory, which this process has written",
}


def name_of(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def uses() -> Iterator[tuple[str, str]]:
    """Yield the calls and imports of each file that has a suspect word."""
    for path in sorted(SRC.rglob("*.py")):
        here, text = path.relative_to(SRC).as_posix(), path.read_text("utf-8")
        if not SUSPECT.search(text):
            continue  # to parse them all takes seconds
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Call(func=func):
                    yield here, name_of(func)
                case ast.Import(names=names):
                    yield from ((here, f"import {each.name}") for each in names)
                case ast.ImportFrom(module=str(module), names=names):
                    yield here, f"import {module}"
                    yield from ((here, f"{module}.{each.name}") for each in names)
                case ast.keyword(arg="shell"):
                    yield here, "shell="


def test_nothing_in_the_package_runs_data() -> None:
    found = list(uses())
    assert {here for here, _ in found} >= IMPORTS.keys() | READ_BACK.keys()
    forbidden = RUNS | {f"import {each}" for each in MODULES} | {"shell="}
    assert {each for each in found if each[1] in forbidden and each[0] not in READ_BACK} == set()
    imports = {here for here, name in found if name.rpartition(".")[2] == "import_module"}
    assert imports == IMPORTS.keys()


def hostile_names() -> list[Any]:
    return [
        "os:system",
        "subprocess:Popen",
        "builtins:eval",
        "builtins:type",
        "hostile_module:Anything",
        "hostile_module.inner:Anything",
        "langgraph.types:Send.__init__.__globals__",
        "langgraph.types:Command.__class__",
        "langchain_core.documents.base:Document.__subclasses__",
        "..:x",
        ":",
        "",
        None,
        ["os", "system"],
        {"os": "system"},
    ]


@pytest.mark.slow  # because of what it imports
def test_a_stored_name_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from limpet.compat.langgraph.classes import Allowed

    marker = tmp_path / "ran"
    (tmp_path / "hostile_module.py").write_text(f"open({str(marker)!r}, 'w').close()")
    monkeypatch.syspath_prepend(tmp_path)
    for name in hostile_names():
        try:
            assert Allowed().class_of(name) is None, name
        except InvalidInput:
            continue
    assert "hostile_module" not in sys.modules
    assert not marker.exists()


@pytest.mark.slow
def test_a_stored_checkpoint_that_names_a_class_makes_nothing() -> None:
    """A writer that may change the states, and so what the saver reads."""
    from limpet.compat.langgraph import LimpetSaver

    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    with limpet.open("memory:") as store:
        saver = LimpetSaver(store)
        checkpoint: Any = {"v": 4, "id": "1f0", "ts": "", "versions_seen": {}}
        checkpoint |= {"channel_values": {"x": {"y": 1}}, "channel_versions": {"x": 1}}
        made = saver.put(config, checkpoint, {}, {"x": 1})
        (info,) = store.history()
        scope = store.scope(*info.scope)
        state: Any = scope.load(info.id).state  # type: ignore[union-attr]
        for tag in ("$object", "$model", "$dataclass", "$enum", "$bytes", "$pickle", "$langchain"):
            for name in ("os:system", "subprocess:Popen"):
                state["channel_values"]["x"] = {tag: {"class": name, "args": ["touch x"]}}
                scope.save(state, id=info.id, overwrite=True, metadata=info.metadata)
                try:
                    found = saver.get_tuple(made)
                except limpet.LimpetError:
                    continue
                assert found is None or isinstance(found.checkpoint["channel_values"]["x"], dict)


def test_the_audit_fails_only_if_something_is_known() -> None:
    fine = '{"dependencies": [{"name": "a", "version": "1", "vulns": []}]}'
    assert audit.judged(fine, "")[0] == 0
    assert audit.judged(fine.replace("[]", '[{"id": "CVE-1"}]'), "")[0] == 1
    code, text = audit.judged("", "no network\nConnectionError: refused")
    assert code == 0
    assert text.count("\n") == 0
