"""One run: a scenario in a mode with a seed, from the first save to the verdict."""

from collections.abc import Callable
from traceback import format_exception
from typing import NamedTuple

from limpet.protocol import Query
from simulation import actions as do
from simulation.checker import seen_infos, violations
from simulation.client import Client
from simulation.engine import open_objects, small_states
from simulation.faults import MODES, Crash
from simulation.history import Op
from simulation.scenarios import SCENARIOS, Scenario
from simulation.scheduler import Event
from simulation.words import lines_of
from simulation.world import Opener, World

_WRITERS = 3
_STEPS_MAX = 3
_REPAIR_PER_MILLE = 250
_IDS_FOUND = 3  # by the index, at the end


class Run(NamedTuple):
    """What came of a run; `broken` is empty if every promise was kept.

    `options` say which engine was run, as the command takes them.
    """

    scenario: str
    mode: str
    seed: int
    broken: list[str]
    trace: list[Event]
    ops: list[Op]
    options: str = ""

    @property
    def name(self) -> str:
        """How to ask for the same run again."""
        return f"{self.options}--scenario {self.scenario} --mode {self.mode} --seed {self.seed}"

    @property
    def is_undecided(self) -> bool:
        """Whether it is too tangled to be judged, and nothing else is wrong."""
        return bool(self.broken) and all(each.startswith("no verdict") for each in self.broken)

    def report(self) -> str:
        """Return the trace, what is broken, and how to replay it."""
        return "\n".join(
            [
                *lines_of(self.trace),
                "",
                *self.broken,
                "",
                f"replay: python -m simulation {self.name} --trace",
            ]
        )


@small_states()
def simulate(scenario_name: str, mode_name: str, seed: int, opener: Opener = open_objects) -> Run:
    """Run a scenario once and judge it."""
    world = World(seed, MODES[mode_name], opener)
    try:
        broken = _broken(world, SCENARIOS[scenario_name])
    except Exception as failure:
        # What an engine raises that is no answer is a finding, and its traceback says where.
        broken = ["the engine failed:\n" + "".join(format_exception(failure))]
    return Run(scenario_name, mode_name, seed, broken, world.scheduler.trace, world.ops)


def _broken(world: World, scenario: Scenario) -> list[str]:
    scenario.setup(Client(world, "setup"))
    world.faults.active = True
    failure = world.scheduler.run(_programs(world, scenario))
    if failure is not None:
        raise failure
    if world.scheduler.stuck:
        return ["an actor makes no progress: the run was stopped"]
    world.faults.active = False
    world.settled = True
    _read_everything(world)
    _inspect(world)
    mode = world.faults.mode
    return violations(world.ops, faulty=mode.faulty, late=bool(mode.late))


def _programs(world: World, scenario: Scenario) -> dict[str, Callable[[], None]]:
    dice = world.dice_of("programs")
    programs = {}
    for name in "abc"[:_WRITERS]:
        steps = [dice.choice(scenario.menu) for _ in range(1 + dice.below(_STEPS_MAX))]
        programs[name] = _program(world, name, steps)
    if dice.chance(600):
        steps = [dice.choice(scenario.views) for _ in range(2 + dice.below(4))]
        programs["r"] = _program(world, "r", steps)
    if dice.chance(300):
        steps = [dice.choice((do.sweep, do.check, do.repair)) for _ in range(1 + dice.below(2))]
        programs["s"] = _program(world, "s", steps)
    return programs


def _program(world: World, name: str, steps: list[do.Action]) -> Callable[[], None]:
    def program() -> None:
        client = Client(world, name)
        for step in steps:
            try:
                step(client)
            except Crash:
                # The process that replaces it goes on with the next step.
                client.restart()

    return program


def _read_everything(world: World) -> None:
    """Read all, have a fresh writer commit twice, and read all again, each with an empty memory."""
    scopes = sorted({op.scope for op in world.ops if op.scope is not None})
    _read_all(world, "read1")
    writer = Client(world, "fresh")
    for scope in scopes:
        writer.save(scope)
        writer.save(scope)
    _read_all(world, "read2", written=True)


def _inspect(world: World) -> None:
    """Check the store, sometimes repair it, and read all once more: nothing may have changed."""
    repair = world.dice_of("repair").chance(_REPAIR_PER_MILLE)
    Client(world, "check").check(repair=repair)
    if repair:
        _read_all(world, "read3", written=True)


def _read_all(world: World, name: str, *, written: bool = False) -> None:
    reader = Client(world, name)
    seen = {(info.scope, info.id) for op in world.ops for info in seen_infos(op)}
    seen |= {
        (op.scope, op.given["commit"].id)
        for op in world.ops
        if op.verb == "commit" and op.scope is not None and op.given["commit"].id is not None
    }
    scopes = sorted({op.scope for op in world.ops if op.scope is not None})
    for scope in scopes:
        reader.read(scope)
        reader.info(scope)
        reader.history(scope)
        reader.pages(scope)
        reader.ids(scope)
        ids = sorted(id for where, id in seen if where == scope)
        if ids:
            reader.read(scope, *ids)
        if any(op.verb == "write_note" for op in world.ops):
            for on in (None, *sorted({op.given["write"].on or "" for op in _writes(world)} - {""})):
                reader.notes(scope, on=on)
    if written:
        for labels in ({"l": "1"}, {"l": "2"}, {"k": ""}):
            reader.query(Query(labels=tuple(labels.items())))
        for id in reader.dice.shuffled(sorted({id for _, id in seen}))[:_IDS_FOUND]:
            reader.query(Query(id=id))


def _writes(world: World) -> list[Op]:
    return [op for op in world.ops if op.verb == "write_note"]
