"""Many cases in one test: `pytest.mark.parametrize`, for cases that may share their fixtures."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

Test = Callable[..., Any]


def each_case(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """Call a test with each case in turn. A failure has a note that says which one it was.

    The test may be async.
    """
    words = [names] if isinstance(names, str) else names
    given = [dict(zip(words, value if len(words) > 1 else [value], strict=True)) for value in cases]

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)

        @wraps(test)
        def run(**fixtures: Any) -> None:
            for case in given:
                with _noted(case):
                    test(**fixtures, **case)

        @wraps(test)
        async def run_async(**fixtures: Any) -> None:
            for case in given:
                with _noted(case):
                    await test(**fixtures, **case)

        left = [each for name, each in signature.parameters.items() if name not in words]
        looped: Test = run_async if inspect.iscoroutinefunction(test) else run
        looped.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return looped

    return decorate


@contextmanager
def _noted(case: dict[str, Any]) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {case}")
        raise
