"""Rules that no linter checks, as ordinary tests. Each names the offenders."""

import ast
import inspect
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import limpet
from limpet import AsyncLease, AsyncScope, AsyncStore, Lease, Scope, Store

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
    """Return the files that git tracks or would add; without git, all files in our folders."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
        paths = [ROOT / name for name in listed.decode().split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        folders = ("src", "tests", "simulation", "docs", "examples", "benchmarks")
        paths = [path for folder in folders for path in (ROOT / folder).rglob("*")]
        paths += ROOT.glob("*")
        paths = [path for path in paths if "__pycache__" not in path.parts]
    return [path for path in paths if path.is_file()]


@cache
def lines_of_the_project() -> list[tuple[str, str]]:
    """Return every line of every file with its address."""
    lines = []
    for path in files_of_the_project():
        name, text = path.relative_to(ROOT), path.read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            lines.append((f"{name}:{number}", line))
    return lines


def test_the_files_are_found() -> None:
    """Otherwise the tests below would pass because they see nothing."""
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
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
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
                    (name.name if name.name in CHANCE else "uuid", "uuid")
                    for name in names
                    if name.name not in ("UUID", "getnode")  # neither is chance
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
    """Return the forbidden names that a module uses, sorted.

    The test kit may read the clock, and needs UUIDs as values that are refused. Its randomness
    comes from Hypothesis, so that a failure can be replayed.
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


def test_the_search_for_time_and_chance_finds_every_spelling() -> None:
    sources = [
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
    ]
    assert [each for each in sources if len(offences(ast.parse(each))) != 1] == []


def test_sql_has_no_clock_and_no_chance() -> None:
    ambient = re.compile(
        r"\b(current_(timestamp|time|date)|now\(|random\(|randomblob\(|unixepoch\()|'now'", re.I
    )
    offenders = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in SRC.rglob("*.sql")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if ambient.search(line.partition("--")[0])
        # For people: nothing is decided by the time at which a migration was applied. And what
        # tells a store from others is drawn once, with its tables.
        and "applied_at" not in line
        and "INTO store" not in line
    ]
    assert offenders == []


# The sync and the async API.

APIS: list[tuple[type, type]] = [(Store, AsyncStore), (Scope, AsyncScope), (Lease, AsyncLease)]
ONLY_ASYNC = {AsyncStore: {"aclose", "run"}, AsyncScope: set[str](), AsyncLease: set[str]()}
NOT_AWAITED = {"scope"}


def public(cls: type) -> dict[str, Any]:
    """Return the public members of a class, without calling any property."""
    names = [name for name in dir(cls) if not name.startswith("_")]
    return {name: inspect.getattr_static(cls, name) for name in names}


def twins() -> list[tuple[Any, Any]]:
    """Return every method that both APIs have, and both openers."""
    return [
        (limpet.open, limpet.open_async),
        *(
            (member, public(aio)[name])
            for sync, aio in APIS
            for name, member in public(sync).items()
            if inspect.isfunction(member)
        ),
    ]


def test_both_apis_have_the_same_names() -> None:
    for sync, aio in APIS:
        assert public(aio).keys() - public(sync).keys() == ONLY_ASYNC[aio]
        assert public(sync).keys() - public(aio).keys() == set()
        for name, member in public(sync).items():
            assert isinstance(public(aio)[name], type(member)), name


def test_twins_take_the_same_arguments() -> None:
    offenders = []
    for pair in twins():
        taken, taken_async = (
            [(p.name, p.kind, p.default) for p in inspect.signature(each).parameters.values()]
            for each in pair
        )
        if taken != taken_async:
            offenders.append(pair[0].__qualname__)
    assert offenders == []


def are_twins(sync: Any, aio: Any) -> bool:
    """Tell whether two types are twins, of the same states: `Scope[S]` and `AsyncScope[S]`."""
    return (get_origin(sync), get_origin(aio)) in APIS and get_args(sync) == get_args(aio)


def test_twins_return_the_same() -> None:
    for sync, aio in twins()[1:]:
        given, given_async = (get_type_hints(verb)["return"] for verb in (sync, aio))
        awaited = inspect.iscoroutinefunction(aio)
        if sync.__name__ in NOT_AWAITED:
            same = not awaited and are_twins(given, given_async)
        elif get_origin(given) is Iterator:
            same = not awaited and get_origin(given_async) is AsyncIterator
            same = same and get_args(given_async) == get_args(given)
        elif get_origin(given) is AbstractContextManager:
            same = not awaited and get_origin(given_async) is AbstractAsyncContextManager
            same = same and are_twins(*get_args(given), *get_args(given_async))
        else:
            same = awaited and (given_async == given or are_twins(given, given_async))
        assert same, sync.__qualname__


def test_an_async_twin_points_to_its_sync_twin() -> None:
    offenders = [
        aio.__qualname__
        for sync, aio in [*APIS, *twins()]
        if f"Async twin of `{sync.__qualname__}`" not in (aio.__doc__ or "")
    ]
    assert offenders == []


# Leftovers.


def lines_with(pattern: str) -> list[str]:
    """Return the address of every line in which a pattern is found."""
    return [where for where, line in lines_of_the_project() if re.search(pattern, line)]


# These patterns are written in pieces, or this file would find itself.


def test_what_is_left_to_do_has_an_issue() -> None:
    left = "|".join(rf"\b{first}{rest}\b" for first, rest in (("TO", "DO"), ("FIX", "ME")))
    assert lines_with(rf"^(?!.*#\d).*({left})") == []


def test_nothing_mentions_the_workplace() -> None:
    assert lines_with("/wo" + "rk/|sha" + "red/") == []


def test_the_old_name_of_the_project_is_gone() -> None:
    """It belongs to another project."""
    assert lines_with("(?i)hold" + "fast") == []
