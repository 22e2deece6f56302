"""Many cases in one test: where `pytest.mark.parametrize` would make a test of each."""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

Test = Callable[..., None]


def for_each(names: str, cases: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test for one case after the other; a failure says for which.

    Fixtures are made once for all of them.
    """
    wanted = names.replace(",", " ").split()
    listed = [(case,) if len(wanted) == 1 else case for case in cases]
    assert listed, "there is no case"

    def decorate(test: Test) -> Test:
        @wraps(test)
        def in_turn(**fixtures: Any) -> None:
            for number, case in enumerate(listed):
                given = dict(zip(wanted, case, strict=True))
                try:
                    test(**fixtures, **given)
                except BaseException as error:
                    error.add_note(f"in case {number}: {given!r:.500}")
                    raise

        signature = inspect.signature(test)
        others = [each for name, each in signature.parameters.items() if name not in wanted]
        in_turn.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return in_turn

    return decorate
