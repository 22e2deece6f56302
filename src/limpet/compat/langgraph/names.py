"""Under which names classes are stored and found again, and how they are written to be pasted."""

import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from inspect import getattr_static
from pathlib import Path
from typing import Any

MAIN = "__main__"
_MAINS = frozenset((MAIN, "__mp_main__"))  # the latter in a process that multiprocessing spawned


def module_name(module: str) -> str:
    """Return the name that other programs import a module by.

    For the script that was started it is that of `python -m`, or of its file. It stays `__main__`
    if there is no such name, as in a notebook.
    """
    if module not in _MAINS:
        return module
    main = sys.modules[MAIN]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name not in _MAINS:
        return str(spec.name)
    path = Path(getattr(main, "__file__", None) or "")
    return path.stem if path.suffix == ".py" and path.stem.isidentifier() else MAIN


def class_name(kind: type) -> str:
    """Return the name that a class is stored under, unless another class has it."""
    return f"{module_name(kind.__module__)}:{kind.__qualname__}"


def is_main(kind: Any) -> bool:
    return isinstance(kind, type) and kind.__module__ in _MAINS


def other_names(kind: type) -> Iterator[str]:
    """Yield the names that a class may have been stored under by programs that import it otherwise.

    `__main__` by a notebook and by early versions; `worker` and `app.worker` for `app/worker.py`.
    """
    path = getattr(sys.modules.get(kind.__module__), "__file__", None)
    parts = Path(path).with_suffix("").parts if path else ()
    for module in (*_MAINS, *(".".join(parts[at:]) for at in range(len(parts)))):
        yield f"{module}:{kind.__qualname__}"


def loaded_at(module: str, qualname: str) -> Any:
    """Return what has a name in a module that is imported, else None; runs no code."""
    found: Any = sys.modules.get(module)
    if found is None and module == module_name(MAIN):
        found = sys.modules[MAIN]
    for part in qualname.split("."):
        found = getattr_static(found, part, None)
    return found


def imported_module(name: str) -> Any:
    """Return a module; imported, unless it is the script that was started: it would run again."""
    if name in sys.modules:
        return sys.modules[name]
    main = sys.modules[MAIN]
    if name == module_name(MAIN):
        return main
    spec = find_spec(name)
    is_script = spec is not None and spec.origin == getattr(main, "__file__", "")
    return main if is_script else import_module(name)


# What to paste


def is_importable(kind: type) -> bool:
    """Return whether a class, and those that it has as parameters, are found by their names."""
    parts = [each for each in _parts(kind) if isinstance(each, type)]
    return all(loaded_at(each.__module__, each.__qualname__) is each for each in parts)


def may_import(module: str) -> bool:
    """Return whether there is such a module apart from the script. Nothing is imported."""
    if module in (MAIN, module_name(MAIN)):
        return False
    top = module.partition(".")[0]
    return top in sys.modules or find_spec(top) is not None


def lines(kinds: Sequence[Any], *more: tuple[str, str]) -> str:
    """Return the lines that allow classes, and `more` that may not be imported yet.

    `kinds` may also have (module, name). Classes of the script itself are not imported, and two of
    one name get different ones. Empty if a class has parameters that are not classes.
    """
    found = [part for kind in kinds if isinstance(kind, type) for part in _parts(kind)]
    if not all(isinstance(part, type) for part in found):
        return ""
    parts = [*((part.__module__, part.__qualname__) for part in found), *more]
    imports: dict[str, tuple[str, str]] = {}  # by the name that a class gets
    names: dict[tuple[str, str], str] = {}
    for module, qualname in sorted(parts, key=_is_imported):
        top, dot, rest = qualname.rpartition("<locals>.")[2].partition(".")
        name, source = top, (module if _is_imported((module, qualname)) else "", top)
        while imports.setdefault(name, source) != source:
            name += "2"
        names[module, qualname] = name + dot + rest
    by_module: dict[str, list[str]] = {}
    for name, (module, top) in sorted(imports.items()):
        by_module.setdefault(module, []).append(top if name == top else f"{top} as {name}")
    by_module.pop("", None)
    written = [_written(each, names) if isinstance(each, type) else repr(each) for each in kinds]
    allow = ", ".join(dict.fromkeys([*written, *(names[each] for each in more)]))
    first = [f"from {module} import {', '.join(by_module[module])}" for module in sorted(by_module)]
    return "`" + "; ".join([*first, f"LimpetSaver(store, allow=[{allow}])"]) + "`"


def _is_imported(part: tuple[str, str]) -> bool:
    module, qualname = part
    return module not in ("builtins", *_MAINS) and "<locals>" not in qualname


def _written(kind: type, names: dict[tuple[str, str], str]) -> str:
    origin, args = _parameters(kind)
    if origin is None:
        return names[kind.__module__, kind.__qualname__]
    return f"{_written(origin, names)}[{', '.join(_written(each, names) for each in args)}]"


def _parts(kind: Any) -> Iterator[Any]:
    """Yield a class; of a pydantic model with parameters, such as `Page[Order]`, its parts."""
    origin, args = _parameters(kind)
    if origin is None:
        yield kind
    for each in (origin, *args) if origin else ():
        yield from _parts(each)


def _parameters(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    generic = getattr(kind, "__pydantic_generic_metadata__", None) or {"origin": None, "args": ()}
    return generic["origin"], generic["args"]
