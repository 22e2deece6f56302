"""What a server counts, in the text format of Prometheus: numbers, and never an id or a state."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Counts of one process since it was started."""

    def __init__(self) -> None:
        self.connections = 0
        self.in_flight = 0
        self.streams = 0
        self._requests: Counter[tuple[str, int]] = Counter()
        self._sent_bytes = 0
        self._counts: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}

    def add(self, operation: str, status: int, sent_bytes: int) -> None:
        """Count a request that has ended."""
        self._requests[operation, status] += 1
        self._sent_bytes += sent_bytes

    def add_time(self, operation: str, seconds: float) -> None:
        """Count how long the answer took; streams take as long as the client likes."""
        counts = self._counts.setdefault(operation, [0] * (len(_BOUNDS_S) + 1))
        counts[bisect_left(_BOUNDS_S, seconds)] += 1
        self._seconds[operation] = self._seconds.get(operation, 0.0) + seconds

    def text(self, received_bytes: int) -> bytes:
        return ("\n".join(self._lines(received_bytes)) + "\n").encode()

    def _lines(self, received_bytes: int) -> Iterator[str]:
        yield from _head("requests_total", "counter", "requests that have ended")
        for (operation, status), count in sorted(self._requests.items()):
            labels = f'operation="{operation}",status="{status}"'
            yield f"limpet_http_requests_total{{{labels}}} {count}"
        yield from _head("request_seconds", "histogram", "time until the answer, without streams")
        for operation, counts in sorted(self._counts.items()):
            yield from self._histogram(operation, counts)
        for name, kind, what, value in (
            ("received_bytes_total", "counter", "bytes of bodies received", received_bytes),
            ("sent_bytes_total", "counter", "bytes of bodies sent", self._sent_bytes),
            ("in_flight", "gauge", "requests being answered, without streams", self.in_flight),
            ("streams", "gauge", "streams being sent", self.streams),
            ("connections", "gauge", "open connections", self.connections),
        ):
            yield from _head(name, kind, what)
            yield f"limpet_http_{name} {value}"

    def _histogram(self, operation: str, counts: list[int]) -> Iterator[str]:
        name, total = "limpet_http_request_seconds", 0
        for bound, count in zip((*_BOUNDS_S, "+Inf"), counts, strict=True):
            total += count
            yield f'{name}_bucket{{operation="{operation}",le="{bound}"}} {total}'
        yield f'{name}_sum{{operation="{operation}"}} {self._seconds[operation]:.6f}'
        yield f'{name}_count{{operation="{operation}"}} {total}'


def _head(name: str, kind: str, what: str) -> Iterator[str]:
    yield f"# HELP limpet_http_{name} {what}"
    yield f"# TYPE limpet_http_{name} {kind}"
