"""The simulated bucket is a bucket: it does what every bucket must do when nothing goes wrong."""

import pytest

from limpet.backends.buckets.protocol import Bucket
from simulation.bucket import SimulatedBucket, Storage
from simulation.dice import Dice
from simulation.faults import MODES, Faults
from simulation.scheduler import Scheduler
from tests.buckets.suite import BucketSuite, by_names


def storage(seed: int = 1) -> Storage:
    dice = Dice(seed)
    return Storage(Scheduler(dice), Faults(MODES["none"], dice), dice)


class Simulated(BucketSuite):
    def test_the_storage_says_when(self, bucket: Bucket) -> None:
        """By the clock of the simulation, which is not ours."""
        bucket.put("k/x", b"1", expect=None)
        (found,) = bucket.get(["k/x"])
        (entry,) = bucket.list("k/", limit=1)
        assert found is not None
        assert found.modified == entry.modified > 0


class TestFlat(Simulated):
    @pytest.fixture
    def bucket(self) -> SimulatedBucket:
        flat = storage()
        flat.by_names = False
        return SimulatedBucket(flat, "a")


class TestTree(Simulated):
    order = staticmethod(by_names)

    @pytest.fixture
    def bucket(self) -> SimulatedBucket:
        tree = storage()
        tree.by_names = True
        return SimulatedBucket(tree, "a")


def test_the_simulators_dice_are_fair() -> None:
    dice = Dice(7)
    counts = [0] * 6
    for _ in range(6_000):
        counts[dice.below(6)] += 1
    assert all(800 < count < 1_200 for count in counts)
    assert sorted(dice.shuffled(range(9))) == list(range(9))
    assert [Dice(3).bits(80) for _ in range(2)] == [Dice(3).bits(80)] * 2
