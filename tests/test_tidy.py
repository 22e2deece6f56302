"""The rules of the house, as ordinary tests: each names the offenders."""

import ast
import inspect
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest

import limpet
from limpet import AsyncLease, AsyncScope, AsyncStore, Lease, Scope, Store
from limpet.protocol import Backend

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src" / "limpet"
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def modules() -> dict[str, ast.Module]:
    """Return the package's modules by their path below the package."""
    return {
        path.relative_to(SRC).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(SRC.rglob("*.py"))
    }


def files_of_the_project() -> list[Path]:
    """Return what git knows or would take, or without git whatever stands in our folders."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
        paths = [ROOT / name for name in listed.decode().split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        folders = ("src", "tests", "docs", "examples", "benchmarks")
        paths = [path for folder in folders for path in (ROOT / folder).rglob("*")]
        paths += ROOT.glob("*")
        paths = [path for path in paths if "__pycache__" not in path.parts]
    return [path for path in paths if path.is_file()]


def lines_of_the_project() -> Iterator[tuple[str, str]]:
    """Yield every line of every file with its address."""
    for path in files_of_the_project():
        text = path.read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            yield f"{path.relative_to(ROOT)}:{number}", line


def test_there_is_something_to_look_at() -> None:
    """Guard the guards: none of them may pass because it sees nothing."""
    assert {"opening.py", "core/codec.py", "backends/memory.py"} <= modules().keys()
    assert {ROOT / "README.md", SRC / "api" / "store.py"} <= set(files_of_the_project())


# Size.


def test_files_are_short() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in SRC.rglob("*")
        if path.suffix in {".py", ".sql"}
    }
    assert {name: lines for name, lines in lengths.items() if lines > FILE_LINES_MAX} == {}


def test_functions_are_short() -> None:
    offenders = {}
    for name, module in modules().items():
        for node in ast.walk(module):
            if isinstance(node, Function):
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                lines = (node.end_lineno or node.lineno) - first + 1
                if lines > FUNCTION_LINES_MAX:
                    offenders[f"{name}:{node.name}"] = lines
    assert offenders == {}


# Time, chance and environment come from opening.py alone.

CLOCK = {"time", "now"}
CHANCE = {"random", "secrets", "uuid1", "uuid4"}
AMBIENT = {"urandom", "getrandom", "environ", "environb", "getenv", "getenvb"}
NOW = {"now", "utcnow", "today"}


def ambient_uses(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (rule, name) for every use of a clock, of chance or of the environment."""
    for node in ast.walk(module):
        match node:
            case ast.Import(names=names):
                yield from ((alias.name.partition(".")[0], alias.name) for alias in names)
            case ast.ImportFrom(module="os", names=names):
                yield from (("os", name.name) for name in names if name.name in AMBIENT)
            case ast.ImportFrom(module="uuid", names=names):
                yield from (
                    (name.name if name.name in CHANCE else "uuid", "uuid") for name in names
                )
            case ast.ImportFrom(module=str(source), level=0):
                yield source.partition(".")[0], source
            case ast.Attribute(value=ast.Name(id="uuid"), attr=attr) if attr in CHANCE:
                yield attr, "uuid"
            case ast.Attribute(value=ast.Name(id="os"), attr=attr) if attr in AMBIENT:
                yield "os", attr
            case ast.Attribute(value=ast.Name(id="datetime" | "date"), attr=attr) if attr in NOW:
                yield "now", attr
            case ast.Attribute(value=ast.Attribute(attr="datetime" | "date"), attr=attr) if (
                attr in NOW
            ):
                yield "now", attr


def offences(module: ast.Module, *, testing: bool = False) -> list[str]:
    """Return what a module must not use, in the order of names.

    The test kit may look at the clock, and needs UUIDs as values that are refused; chance it gets
    from Hypothesis, so that a failure can be replayed.
    """
    forbidden = CHANCE if testing else CHANCE | CLOCK | {"uuid"}
    uses = list(ambient_uses(module))
    found = {name for rule, name in uses if rule in forbidden}
    return sorted(found | {name for rule, name in uses if rule == "os" and name in AMBIENT})


def test_time_and_chance_come_in_as_arguments() -> None:
    offenders = {}
    for name, module in modules().items():
        found = offences(module, testing=name.startswith("testing/"))
        if found and name != "opening.py":
            offenders[name] = found
    assert offenders == {}
    assert offences(modules()["opening.py"]) == ["environ", "random", "time", "urandom"]


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "import time as t",
        "from time import monotonic",
        "import random",
        "from random import Random",
        "import secrets",
        "from uuid import uuid4",
        "import os; os.urandom(8)",
        "import os; os.environ['X']",
        "import os; os.getenv('X')",
        "from os import environ",
        "from datetime import datetime; datetime.now()",
        "import datetime; datetime.datetime.utcnow()",
        "import datetime; datetime.date.today()",
        "from datetime import date; f(date.today)",
    ],
)
def test_the_search_for_time_and_chance_finds(source: str) -> None:
    assert len(offences(ast.parse(source))) == 1


def test_the_search_for_time_and_chance_lets_pass() -> None:
    harmless = "import os\nfrom datetime import datetime\nos.getpid(); datetime.fromtimestamp(0)"
    assert offences(ast.parse(harmless)) == []
    kit = "import time, uuid\nfrom uuid import UUID\nuuid.UUID(int=1); time.sleep(1)"
    assert offences(ast.parse(kit), testing=True) == []
    assert offences(ast.parse(kit)) == ["time", "uuid"]
    for source in ("import random", "import uuid; uuid.uuid4()", "from uuid import uuid1"):
        assert len(offences(ast.parse(source), testing=True)) == 1


def test_sql_has_no_clock_and_no_chance() -> None:
    ambient = re.compile(
        r"\b(current_(timestamp|time|date)|now\(|random\(|randomblob\(|unixepoch\()|'now'", re.I
    )
    offenders = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in SRC.rglob("*.sql")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if ambient.search(line.partition("--")[0])
        # When a migration was applied is written for people; nothing is decided by it.
        and "applied_at" not in line
    ]
    assert offenders == []


# The sync and async API.

APIS: list[tuple[type, type]] = [(Store, AsyncStore), (Scope, AsyncScope), (Lease, AsyncLease)]
ONLY_ASYNC = {AsyncStore: {"run"}, AsyncScope: set[str](), AsyncLease: set[str]()}
NOT_AWAITED = {"scope"}


def public(cls: type) -> dict[str, Any]:
    """Return the public members of a class, without calling any property."""
    names = [name for name in dir(cls) if not name.startswith("_")]
    return {name: inspect.getattr_static(cls, name) for name in names}


def twins() -> list[Any]:
    """Return every verb that both APIs have."""
    found = []
    for sync, aio in APIS:
        for name, member in public(sync).items():
            if inspect.isfunction(member) and name in public(aio):
                pair = (member, public(aio)[name])
                found.append(pytest.param(*pair, id=f"{sync.__name__}.{name}"))
    return found


@pytest.mark.parametrize(("sync", "aio"), APIS)
def test_both_apis_have_the_same_names(sync: type, aio: type) -> None:
    assert public(aio).keys() - public(sync).keys() == ONLY_ASYNC[aio]
    assert public(sync).keys() - public(aio).keys() == set()
    for name, member in public(sync).items():
        assert isinstance(public(aio)[name], type(member)), name


@pytest.mark.parametrize(("sync", "aio"), twins())
def test_twins_take_the_same_and_give_the_same(sync: Any, aio: Any) -> None:
    taken = [(p.name, p.kind, p.default) for p in inspect.signature(sync).parameters.values()]
    assert [
        (p.name, p.kind, p.default) for p in inspect.signature(aio).parameters.values()
    ] == taken
    given, given_async = (get_type_hints(verb)["return"] for verb in (sync, aio))
    if sync.__name__ in NOT_AWAITED:
        assert not inspect.iscoroutinefunction(aio)
        assert (given, given_async) in APIS
    elif get_origin(given) is Iterator:
        assert not inspect.iscoroutinefunction(aio)
        assert get_origin(given_async) is AsyncIterator
        assert get_args(given_async) == get_args(given)
    elif get_origin(given) is AbstractContextManager:
        assert not inspect.iscoroutinefunction(aio)
        assert get_origin(given_async) is AbstractAsyncContextManager
        assert (*get_args(given), *get_args(given_async)) in APIS
    else:
        assert inspect.iscoroutinefunction(aio)
        assert given_async == given or (given, given_async) in APIS


@pytest.mark.parametrize(("sync", "aio"), twins())
def test_an_async_twin_points_to_its_sync_twin(sync: Any, aio: Any) -> None:
    assert (aio.__doc__ or "").startswith(f"Async twin of `{sync.__qualname__}`")


def test_the_async_classes_point_to_the_sync_ones() -> None:
    pairs: list[tuple[Any, Any]] = [*APIS, (limpet.open, limpet.open_async)]
    for sync, aio in pairs:
        assert (aio.__doc__ or "").startswith(f"Async twin of `{sync.__name__}`")
    taken, taken_async = (
        [(p.name, p.kind, p.default) for p in inspect.signature(opener).parameters.values()]
        for opener in (limpet.open, limpet.open_async)
    )
    assert taken == taken_async


# Promises in words.


def public_classes() -> list[type]:
    return [each for each in vars(limpet).values() if inspect.isclass(each)]


def test_every_public_name_states_its_promise() -> None:
    offenders = [name for name, module in modules().items() if ast.get_docstring(module) is None]
    for cls in [*public_classes(), Backend]:
        members = {cls.__name__: cls, **{f"{cls.__name__}.{n}": m for n, m in public(cls).items()}}
        offenders += [
            name
            for name, member in members.items()
            if (
                inspect.isfunction(member)
                or inspect.isclass(member)
                or isinstance(member, property)
            )
            and not member.__doc__
        ]
    assert offenders == []


# Leftovers.


def test_nothing_prints() -> None:
    offenders = [
        f"{name}:{node.lineno}"
        for name, module in modules().items()
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"print", "breakpoint"}
    ]
    assert offenders == []


def test_what_is_left_to_do_has_an_issue() -> None:
    left = re.compile(
        "|".join(rf"\b{first}{rest}\b" for first, rest in (("TO", "DO"), ("FIX", "ME")))
    )
    offenders = [
        where
        for where, line in lines_of_the_project()
        if left.search(line) and not re.search(r"#\d+", line)
    ]
    assert offenders == []


def test_nothing_mentions_the_workplace() -> None:
    # In pieces, or this file would find itself.
    words = ["/wo" + "rk/", "sha" + "red/"]
    offenders = [
        where for where, line in lines_of_the_project() if any(word in line for word in words)
    ]
    assert offenders == []
