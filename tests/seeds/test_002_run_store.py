"""The documentation of the Go package `session`, line by line: on every engine, in both faces.

Also over the Go store's own files, by `GoRunStore`. A test has the name of the line that it shows;
where that says "file", an engine may keep it in another way.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from itertools import product
from pathlib import Path

import pytest

import limpet
from limpet import NotFound
from limpet.compat.runs import Checkpoint, GoRunStore, RunStore
from tests.compat.runs.hands import AsyncHands, Runs, bare, large
from tests.effort import slowly
from tests.runs.conftest import place_of
from tests.runs.hands import Place

READ_BYTES_MAX = 16 * 1024  # of a run, by a listing
BESIDE_BYTES_MAX = 8 * 1024  # once: what tells where the runs are
ENGINES = ["memory", "sqlite", "directory", "postgres"]
WORDS = [
    {"content": [{"text": "Say hello", "type": "text"}], "role": "user"},
    {"content": [{"id": "t", "input": {"z": 1, "a": 1.0}, "type": "tool_use"}], "role": "x"},
]


FAST = {("memory", "sync"), ("sqlite", "async"), ("go", "sync")}
CASES = [*product((*ENGINES, "s3"), ("sync", "async")), ("go", "sync")]


@pytest.fixture(params=slowly(CASES, but=FAST), ids="-".join)
def case(request: pytest.FixtureRequest) -> tuple[str, str]:
    case: tuple[str, str] = request.param
    return case


class Home:
    """Where the runs of a test are; they can be opened again."""

    def __init__(self, case: tuple[str, str], request: pytest.FixtureRequest) -> None:
        self._engine, self._face = case
        self._folder: Path = request.getfixturevalue("tmp_path")
        self._place: Place | None = None
        self._stack = ExitStack()
        if self._engine != "go":
            self._place = place_of(self._engine, request)
            self._store = self._stack.enter_context(self._place.open())

    def open(self) -> Runs:
        if self._place is None:
            return GoRunStore(self._folder / "sessions")
        if self._face == "sync":
            return RunStore(self._store)
        hands = AsyncHands(self._store)
        self._stack.callback(hands.close)
        return hands

    def reopen(self) -> Runs:
        """Open it as another process would; what is in memory only has no other."""
        if self._place is not None and self._engine != "memory":
            self._store.close()
            self._store = self._stack.enter_context(self._place.open())
        return self.open()

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def home(case: tuple[str, str], request: pytest.FixtureRequest) -> Iterator[Home]:
    home = Home(case, request)
    yield home
    home.close()


@pytest.fixture
def runs(home: Home) -> Runs:
    return home.open()


def at(run_id: str, created_at: str, **values: object) -> Checkpoint:
    return Checkpoint.from_json({"run_id": run_id, "created_at": created_at, **values})


# type Checkpoint struct


def test_type_checkpoint_struct() -> None:
    names = [field.name for field in fields(Checkpoint)]
    assert names == [*Checkpoint("r").to_json(), "extra"]
    assert names[:4] == ["run_id", "task_name", "iteration", "messages"]
    assert names[4:8] == ["system_prompt", "input_tokens", "output_tokens", "created_at"]


def test_system_prompt_is_stored_for_debugging_context(runs: Runs) -> None:
    runs.save(Checkpoint("r", system_prompt="You are <agent> & \u2028 é😀"))
    assert runs.load("r").system_prompt == "You are <agent> & \u2028 é😀"


def test_checkpoint_captures_the_agents_conversation_state_at_a_point_in_time(runs: Runs) -> None:
    """What happens to the messages afterwards changes nothing."""
    messages = list(WORDS)
    runs.save(Checkpoint("r", messages=messages, created_at="2026-03-01T20:54:15.123456789-05:00"))
    messages.append({"role": "user"})
    found = runs.load("r")
    assert found.messages == WORDS
    assert found.created_at == "2026-03-01T20:54:15.123456789-05:00"


def test_persisted_after_each_iteration_so_that_failed_runs_can_resume(home: Home) -> None:
    runs = home.open()
    for iteration in range(1, 4):
        runs.save(Checkpoint("r", "task", iteration, WORDS[:iteration], "", iteration, 2))
    found = home.reopen().load("r")
    assert (found.iteration, found.messages) == (3, WORDS)
    assert (found.input_tokens, found.output_tokens) == (3, 2)


# type Store struct


def test_store_persists_and_retrieves_session_checkpoints(home: Home) -> None:
    saved = Checkpoint("r", "task", 3, WORDS, "prompt", 1234, 2**62, "2026-03-02T02:00:00Z")
    home.open().save(saved)
    assert home.reopen().load("r") == saved


def test_each_run_gets_exactly_one_checkpoint_that_is_overwritten_each_iteration(
    runs: Runs,
) -> None:
    for iteration in range(3):
        runs.save(Checkpoint("r", iteration=iteration))
        runs.save(Checkpoint("other", iteration=10))
    assert sorted((each.run_id, each.iteration) for each in runs.list()) == [
        ("other", 10),
        ("r", 2),
    ]


# func NewStore


@contextmanager
def opened(kind: type[RunStore | GoRunStore], folder: Path | str) -> Iterator[Runs]:
    runs = kind(folder)
    yield runs
    if isinstance(runs, RunStore):
        runs.close()


@pytest.mark.parametrize("kind", [RunStore, GoRunStore])
def test_new_store_is_backed_by_the_given_directory(
    kind: type[RunStore | GoRunStore], tmp_path: Path
) -> None:
    with opened(kind, tmp_path / "runs") as store:
        store.save(Checkpoint("r"))
        with opened(kind, os.fspath(tmp_path / "runs")) as again:
            assert again.has_checkpoint("r")
        with opened(kind, tmp_path / "others") as other:
            assert not other.has_checkpoint("r")


@pytest.mark.parametrize("kind", [RunStore, GoRunStore])
def test_new_store_creates_the_directory_if_it_does_not_exist(
    kind: type[RunStore | GoRunStore], tmp_path: Path
) -> None:
    for _ in range(2):
        with opened(kind, tmp_path / "a" / "b"):
            assert (tmp_path / "a" / "b").is_dir()


# func (*Store) Delete


def test_delete_removes_a_checkpoint(runs: Runs) -> None:
    runs.save(Checkpoint("r"))
    runs.save(Checkpoint("r2"))
    runs.delete("r")
    assert not runs.has_checkpoint("r")
    assert [each.run_id for each in runs.list()] == ["r2"]


def test_delete_is_called_after_successful_task_completion(runs: Runs) -> None:
    """The same run may begin again."""
    runs.save(Checkpoint("r", iteration=9))
    runs.delete("r")
    runs.save(Checkpoint("r", iteration=1))
    assert runs.load("r").iteration == 1


def test_delete_returns_nil_if_the_file_does_not_exist(runs: Runs) -> None:
    runs.delete("r")
    runs.save(Checkpoint("r"))
    runs.delete("r")
    runs.delete("r")


# func (*Store) HasCheckpoint


def test_has_checkpoint_returns_true_if_a_checkpoint_exists_for_the_given_run_id(
    runs: Runs,
) -> None:
    assert not runs.has_checkpoint("r")
    runs.save(Checkpoint("r"))
    assert runs.has_checkpoint("r")
    assert not runs.has_checkpoint("r1")


# func (*Store) List


def test_list_returns_all_checkpoints_sorted_by_creation_time_newest_first(runs: Runs) -> None:
    """By the moment: across zones, to the nanosecond. Go leaves open who is first of two."""
    saved = [
        at("a", "2026-03-01T20:54:15.123456788-05:00"),
        at("b", "2026-03-02T01:54:15.123456789Z", task_name="t", iteration=4, input_tokens=5),
        at("c", "2026-03-02T03:00:00+02:00", output_tokens=6),
        at("d", "0001-01-01T00:00:00Z"),
        at("e", "2026-03-02T01:00:00Z"),
    ]
    assert runs.list() == []
    for each in saved:
        runs.save(each)
    a, b, c, d, e = saved
    assert runs.list() == [b, a, e, c, d]
    runs.save(c)
    assert runs.list() == [b, a, c, e, d]


@contextmanager
def counted() -> Iterator[Callable[[], int]]:
    """Count what this process reads by any call of the system."""

    def total() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    before = total()
    cost = total() - before  # of asking
    before = total() + cost
    yield lambda: total() - before


@pytest.mark.parametrize("engine", ["sqlite", "directory", "go"])
def test_list_reads_only_metadata(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Go reads and parses all of every file. Here the bytes that are really read are counted."""
    count = 20
    saved = [large(f"r{n:02}", f"2026-03-01T20:54:{n:02}Z") for n in range(count)]
    with ExitStack() as stack:

        def opened_again() -> Runs:
            if engine == "go":
                return GoRunStore(tmp_path / "sessions")
            return RunStore(stack.enter_context(place_of(engine, request).open()))

        first = opened_again()
        for each in saved:
            first.save(each)
        runs = opened_again()  # as by another process: nothing is in memory yet
        runs.has_checkpoint("other")
        with counted() as so_far:
            found = runs.list()
            read = so_far()
            for each in saved:
                runs.load(each.run_id)
            whole = so_far()
    assert found == [bare(each) for each in reversed(saved)]
    assert all(each.messages is None for each in found)
    assert 0 < read <= count * READ_BYTES_MAX + BESIDE_BYTES_MAX < whole


# func (*Store) Load


def test_load_reads_a_checkpoint_for_the_given_run_id(runs: Runs) -> None:
    runs.save(Checkpoint("r", iteration=1))
    runs.save(Checkpoint("r1", iteration=2))
    assert (runs.load("r").run_id, runs.load("r").iteration) == ("r", 1)
    assert runs.load("r1").iteration == 2


def test_load_returns_an_error_if_no_checkpoint_exists(runs: Runs) -> None:
    with pytest.raises(NotFound, match="run_id=`r`"):
        runs.load("r")
    runs.save(Checkpoint("r"))
    runs.delete("r")
    with pytest.raises(NotFound):
        runs.load("r")


# func (*Store) Save


def test_save_persists_a_checkpoint_overwriting_any_previous_one_for_the_same_run_id(
    home: Home,
) -> None:
    runs = home.open()
    runs.save(Checkpoint("r", "old", 1, WORDS, "prompt", 1, 2, extra={"old": True}))
    runs.save({"run_id": "r", "iteration": 2, "created_at": "2026-03-02T02:00:00Z"})
    assert home.reopen().load("r") == Checkpoint(
        "r", iteration=2, created_at="2026-03-02T02:00:00Z"
    )


def test_nothing_is_kept_of_a_run_but_its_checkpoint(tmp_path: Path) -> None:
    with limpet.open(f"sqlite:///{tmp_path}/runs.db") as store:
        for iteration in range(3):
            RunStore(store).save(Checkpoint("r", iteration=iteration))
        assert [*store.scope("r", "main", "run").history()] == []
        assert store.stats().snapshots == 1
