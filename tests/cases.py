"""Many cases of one property, in one test."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests import effort

Test = Callable[..., None]


def cases(names: str, values: Iterable[Any]) -> Callable[[Test], Test]:
    """Call a test with each of some values, as `pytest.mark.parametrize` would call many tests.

    The failure says which case it was. Each has a folder `tmp_path` of its own, and a `monkeypatch`
    that ends with it; all other fixtures are shared by the cases.
    """
    given, listed = [name.strip() for name in names.split(",")], list(values)

    def decorate(test: Test) -> Test:
        def run(*instance: Any, **fixtures: Any) -> None:
            assert listed, "there is no case"
            for number, value in enumerate(listed):
                if _is_slow(value) and effort.only_fast_tests:
                    continue
                each = (value,) if len(given) == 1 else value
                if hasattr(value, "marks"):  # it is a `pytest.param`
                    each = value.values
                arguments = dict(zip(given, each, strict=True))
                with pytest.MonkeyPatch.context() as patch:
                    if "tmp_path" in fixtures:
                        arguments["tmp_path"] = fixtures["tmp_path"] / f"case-{number}"
                        arguments["tmp_path"].mkdir()
                    if "monkeypatch" in fixtures:
                        arguments["monkeypatch"] = patch
                    try:
                        test(*instance, **fixtures | arguments)
                    except BaseException as error:
                        name = getattr(value, "id", None) or repr(each)
                        error.add_note(f"in case {number}: {name[:200]}")
                        raise

        # What pytest reads of a test; with `__wrapped__` it would ask for the values as fixtures.
        for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
            setattr(run, attribute, getattr(test, attribute))
        run.__dict__.update(test.__dict__)
        signature = inspect.signature(test)
        left = [each for name, each in signature.parameters.items() if name not in given]
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run

    return decorate


def _is_slow(value: Any) -> bool:
    return any(mark.name == "slow" for mark in getattr(value, "marks", ()))
