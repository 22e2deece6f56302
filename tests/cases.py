"""Many cases of one property, in one test."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import effort

Test = Callable[..., Any]


def for_each(
    names: str | tuple[str, ...], values: Iterable[Any], **made: Callable[[Path], Any]
) -> Callable[[Test], Test]:
    """Call a test with each of some values, as `pytest.mark.parametrize` would call many tests.

    The failure says which case it was. Each has a folder `tmp_path` of its own, a `monkeypatch`
    that ends with it, and what is `made` for it in that folder: `store=opened` gives it what
    `opened(tmp_path)` returns, and enters and leaves that. Fixtures are shared by the cases. The
    test may be async.
    """
    given = names.replace(",", " ").split() if isinstance(names, str) else names
    cases = list(enumerate(values))
    assert cases, "there is no case"

    def decorate(test: Test) -> Test:
        taken = dict(inspect.signature(test).parameters)

        @contextmanager
        def begun(number: int, value: Any, fixtures: dict[str, Any]) -> Iterator[dict[str, Any]]:
            each = (value,) if len(given) == 1 else value
            if hasattr(value, "marks"):  # it is a `pytest.param`
                each = value.values
            arguments = fixtures | dict(zip(given, each, strict=True))
            try:
                with ExitStack() as stack:
                    if "tmp_path" in fixtures:
                        arguments["tmp_path"] = fixtures["tmp_path"] / f"{number}"
                        arguments["tmp_path"].mkdir()
                    if "monkeypatch" in fixtures:
                        patch = stack.enter_context(pytest.MonkeyPatch.context())
                        arguments["monkeypatch"] = patch
                    for name, make in made.items():
                        arguments[name] = _entered(make(arguments["tmp_path"]), stack)
                    yield {name: arguments[name] for name in taken if name != "self"}
            except BaseException as error:
                name = getattr(value, "id", None) or repr(each)
                error.add_note(f"in case {number}: {name[:200]}")
                raise

        def run(*instance: Any, **fixtures: Any) -> None:
            for number, value in cases:
                if not _is_left_out(value):
                    with begun(number, value, fixtures) as arguments:
                        test(*instance, **arguments)

        async def run_async(*instance: Any, **fixtures: Any) -> None:
            for number, value in cases:
                if not _is_left_out(value):
                    with begun(number, value, fixtures) as arguments:
                        await test(*instance, **arguments)

        looped: Test = run_async if inspect.iscoroutinefunction(test) else run
        # What pytest reads of a test; with `__wrapped__` it would ask for the values as fixtures.
        for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
            setattr(looped, attribute, getattr(test, attribute))
        looped.__dict__.update(test.__dict__)
        fixed = [each for name, each in taken.items() if name not in {*given, *made}]
        if made and "tmp_path" not in taken:
            fixed.append(inspect.Parameter("tmp_path", inspect.Parameter.KEYWORD_ONLY))
        looped.__signature__ = inspect.Signature(fixed)  # type: ignore[attr-defined]
        return looped

    return decorate


def _entered(found: Any, stack: ExitStack) -> Any:
    is_context = isinstance(found, AbstractContextManager) and not isinstance(found, Path)
    return stack.enter_context(found) if is_context else found


def _is_left_out(value: Any) -> bool:
    is_slow = any(mark.name == "slow" for mark in getattr(value, "marks", ()))
    return is_slow and effort.only_fast_tests
