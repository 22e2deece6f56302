"""Many cases in one test: `pytest.mark.parametrize`, for cases that may share their fixtures."""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

Test = Callable[..., None]


def each_case(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """Call a test with each case in turn. A failure has a note that says which one it was."""
    words = [names] if isinstance(names, str) else names
    values = list(cases)

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)

        @wraps(test)
        def run(**fixtures: Any) -> None:
            for value in values:
                case = dict(zip(words, value if len(words) > 1 else [value], strict=True))
                try:
                    test(**fixtures, **case)
                except BaseException as error:
                    error.add_note(f"in the case {case}")
                    raise

        left = [each for name, each in signature.parameters.items() if name not in words]
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run

    return decorate
