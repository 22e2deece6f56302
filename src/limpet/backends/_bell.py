"""A bell that ends another thread's wait."""

from queue import Empty, SimpleQueue


class Bell:
    """May be rung at any moment, even by the garbage collector inside the thread that waits.

    An event of `threading` may not: it would wait for a lock that this very thread holds.
    """

    def __init__(self) -> None:
        self._rings: SimpleQueue[None] = SimpleQueue()

    def ring(self) -> None:
        """End the wait that is under way, or the next one."""
        self._rings.put(None)

    def is_set(self) -> bool:
        """Tell whether it was rung and nobody has answered yet."""
        return not self._rings.empty()

    def wait(self, seconds: float) -> bool:
        """Wait until it is rung, for some time at most; tell whether it was."""
        try:
            self._rings.get(timeout=max(0.0, seconds))
        except Empty:
            return False
        self._rings.put(None)  # to be answered
        return True

    def answer(self) -> bool:
        """Tell whether it was rung since the last answer."""
        rung = False
        try:
            while True:
                self._rings.get_nowait()
                rung = True
        except Empty:
            return rung
