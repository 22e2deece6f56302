"""Stores over a bucket of a test, which roll before a save returns."""

import time
from functools import partial
from typing import Any

from limpet import Store, opening
from limpet.backends.buckets.protocol import Bucket
from limpet.backends.objects.storage import ObjectStorage
from limpet.engine import Engine, open_engine
from limpet.engine.rolling import OBJECTS
from limpet.protocol import Clock


def engine_on(bucket: Bucket, **options: Any) -> Engine:
    given: dict[str, Any] = {"clock": opening.CLOCK, "draw": opening.draw, "tails": OBJECTS}
    given |= options
    return open_engine(partial(ObjectStorage, draw=given["draw"]), bucket, **given)


def store_on(bucket: Bucket, **options: Any) -> Store:
    return opening.store_over(engine_on(bucket, **options))


def impatient_clock() -> Clock:
    """Return a clock on which pauses are over at once."""
    slept = [0.0]

    def sleep(seconds: float) -> None:
        slept[0] += seconds

    return Clock(lambda: time.monotonic() + slept[0], sleep, lambda: 0.5)
