"""OpenTelemetry: a span and metrics for each operation of an engine.

The names follow its conventions for databases. Nothing that a caller stores or chooses is in them,
except the kind of a scope: no state, metadata, label, status or note, and no id, since people use
names and addresses as ids. For the same reason an error is its class, without its message.
"""

from collections.abc import Callable
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.context import attach, detach
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, StatusCode, set_span_in_context

from limpet.backends.observed import Observed
from limpet.errors import Conflict
from limpet.model import Pruned, SnapshotInfo
from limpet.protocol import METHODS, Backend, Clock

# Those of the conventions, and two below: a save to a file takes less than a millisecond.
_BOUNDARIES_S = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10)
# The polls of watchers and the renewals of leases have no caller: each would be a trace of its own.
_BACKGROUND = ("read_revisions", "renew")
_METRICS = getattr(metrics, "_internal", None)


def _traced(name: str) -> Callable[..., Any]:
    span_name = f"limpet.{name}"
    has_span, is_commit = name not in _BACKGROUND, name == "commit"

    def operation(self: "Traced", *args: Any, **options: Any) -> Any:
        # Without an SDK nothing is reported: that would take 2 % of a save. It is what happens
        # where these private names are gone.
        if (
            getattr(trace, "_TRACER_PROVIDER", True) is None
            and getattr(_METRICS, "_METER_PROVIDER", True) is None
        ):
            return getattr(self.below, name)(*args, **options)
        attributes = self.attributes[name]
        span: Span = INVALID_SPAN
        token = None
        if has_span:
            span = self.start_span(span_name, kind=SpanKind.CLIENT, attributes=attributes)
            token = attach(set_span_in_context(span))
        begun_s = self.monotonic()
        try:
            result = getattr(self.below, name)(*args, **options)
        except BaseException as error:
            failed = {**attributes, "error.type": type(error).__name__}
            self.duration.record(self.monotonic() - begun_s, failed)
            if isinstance(error, Conflict):
                self.conflicts.add(1, attributes)
            span.set_attribute("error.type", failed["error.type"])
            span.set_status(StatusCode.ERROR)
            raise
        else:
            self.duration.record(self.monotonic() - begun_s, attributes)
            if is_commit:
                self.saved.add(result.size, attributes)
            if token is not None and span.is_recording():
                _describe(span, name, args, result)
            return result
        finally:
            if token is not None:
                detach(token)
                span.end()

    return operation


def _describe(span: Span, name: str, args: tuple[Any, ...], result: Any) -> None:
    subject = args[0] if args else None
    kind = getattr(getattr(subject, "scope", subject), "kind", None)
    if kind is not None:
        span.set_attribute("limpet.scope.kind", kind)
    if isinstance(result, SnapshotInfo):
        span.set_attribute("limpet.state.size", result.size)
    elif isinstance(result, Pruned):
        span.set_attribute("limpet.deleted.count", result.count)
    elif isinstance(result, list):
        span.set_attribute("db.response.returned_rows", len(result))
        if name == "read_snapshots":
            span.set_attribute("limpet.state.size", sum(info.size for info, _ in result))


class Traced(Observed, operation=_traced):
    """Reports every operation to the tracer and the meter that the process has configured."""

    def __init__(self, below: Backend, engine: str, clock: Clock) -> None:
        super().__init__(below, engine, clock)
        self.attributes = {
            name: {"db.system.name": engine, "db.operation.name": name} for name in METHODS
        }
        self.start_span = trace.get_tracer("limpet").start_span
        meter = metrics.get_meter("limpet")
        self.duration = meter.create_histogram(
            "limpet.operation.duration",
            unit="s",
            description="How long the operations of the engine take.",
            explicit_bucket_boundaries_advisory=_BOUNDARIES_S,
        )
        self.saved = meter.create_counter(
            "limpet.state.saved", unit="By", description="Bytes of the states that were saved."
        )
        self.conflicts = meter.create_counter(
            "limpet.conflicts",
            unit="{conflict}",
            description="Writes that another writer came before.",
        )
