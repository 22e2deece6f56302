"""The suite itself: it tests every promise, and no chapter is left out."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from limpet import AsyncScope
from limpet.opening import store_over
from limpet.testing import conformance
from limpet.testing.conformance import PROMISES, Kit, Suite, promises
from limpet.testing.kit import close_loop, through
from tests.conformance import test_s3
from tests.conformance.parts import AboveEngine, Stored
from tests.memory import Memory

TESTS: dict[str, Callable[..., None]] = {
    name: test for name, test in inspect.getmembers(Suite) if name.startswith("test_")
}


def test_there_are_twelve_promises() -> None:
    assert list(PROMISES) == list(range(1, 13))


def test_every_promise_has_a_test() -> None:
    expected = {f"test_promise_{number:02}_{name}" for number, name in PROMISES.items()}
    assert expected <= vars(promises.Promises).keys()


def test_every_promise_test_belongs_to_a_promise() -> None:
    known = tuple(f"test_promise_{number:02}_{name}" for number, name in PROMISES.items())
    assert [name for name in TESTS if name.startswith("test_promise")] == [
        name for name in TESTS if name.startswith(known)
    ]


def test_no_chapter_hides_a_test_of_another() -> None:
    chapters = [each for each in Suite.__mro__ if each not in (Suite, Kit)]
    names = [name for chapter in chapters for name in vars(chapter) if name.startswith("test_")]
    assert len(names) == len(set(names)) == len(TESTS)


def test_the_selections_leave_no_chapter_out() -> None:
    selected = {*Stored.__mro__, *AboveEngine.__mro__}
    assert set(Suite.__mro__) - selected == {Suite}
    on_s3 = {*test_s3.TestSeaweedFS.__mro__, *test_s3.TestSeaweedFSAtLength.__mro__}
    assert set(Stored.__mro__) - on_s3 == {Stored}


def test_both_apis_are_really_used() -> None:
    with store_over(Memory()) as store:
        assert through("sync", store) is store
        driven: Any = through("async", store)
        assert driven._target is store.aio
        assert isinstance(driven.scope("s")._target, AsyncScope)
        assert driven.scope("s").save(1) == store.scope("s").info()
        close_loop()


def test_an_engine_must_say_how_it_is_opened() -> None:
    with pytest.raises(NotImplementedError, match="open_backend"):
        conformance.Suite().open_backend(None)  # type: ignore[arg-type]
