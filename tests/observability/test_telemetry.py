"""OpenTelemetry, by its SDK: what is reported for each verb, and that nothing stored is in it."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.metrics import _internal as metrics_globals
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    ParentBased,
    Sampler,
    SamplingResult,
)

import limpet
from limpet import Conflict, InvalidInput
from limpet.engine import Engine
from limpet.opening import open_backend, store_over
from limpet.protocol import METHODS, Backend, Commit
from limpet.testing.kit import APIS, Api, close_loop, through
from tests.cases import for_each
from tests.memory import Memory
from tests.observability.everything import CANARY, use_everything, use_the_rest
from tests.security.conftest import place_of

DURATION = "limpet.operation.duration"
BACKGROUND = {"read_revisions", "renew"}


class Reported:
    """What a process reports from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, sampler: Sampler = ALWAYS_ON) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        tracing = TracerProvider(sampler=sampler)
        tracing.add_span_processor(SimpleSpanProcessor(self._exporter))
        # Their setters work once in a process, which other tests share.
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", tracing)
        monkeypatch.setattr(metrics_globals, "_METER_PROVIDER", MeterProvider([self._reader]))

    @property
    def spans(self) -> list[ReadableSpan]:
        found = self._exporter.get_finished_spans()
        return [each for each in found if each.name.startswith("limpet.")]

    def named(self, name: str) -> list[ReadableSpan]:
        return [each for each in self.spans if each.name == f"limpet.{name}"]

    def points(self, name: str) -> list[dict[str, Any]]:
        """Return the points of a metric."""
        found = json.loads(self.metrics_text())["resource_metrics"]
        scopes = [scope for each in found for scope in each["scope_metrics"]]
        return [
            point
            for scope in scopes
            for metric in scope["metrics"]
            if metric["name"] == name
            for point in metric["data"]["data_points"]
        ]

    def metrics_text(self) -> str:
        data = self._reader.get_metrics_data()
        return '{"resource_metrics": []}' if data is None else data.to_json()

    def text(self) -> str:
        return "".join(each.to_json() for each in self.spans) + self.metrics_text()


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> Reported:
    return Reported(monkeypatch)


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    api: Api = request.param
    yield api
    close_loop()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/a.db?synchronous=off"


def test_every_verb_is_reported_and_nothing_that_is_stored(
    url: str, reported: Reported, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with limpet.open(f"{url}&otel=true", slow_s=0) as store:
        with trace.get_tracer("caller").start_as_current_span("caller") as caller:
            use_everything(through(api, store))
        use_the_rest(store)

    timed = {each["attributes"]["db.operation.name"] for each in reported.points(DURATION)}
    logged = [each for each in caplog.records if each.name == "limpet"]
    assert timed == {each.__dict__["operation"] for each in logged} == set(METHODS)
    spans = {each.name.removeprefix("limpet.") for each in reported.spans}
    assert spans == timed - BACKGROUND

    of_caller = [each for each in reported.spans if each.parent is not None]
    parents = {each.parent.span_id for each in of_caller if each.parent is not None}
    assert parents == {caller.get_span_context().span_id}
    assert len(of_caller) > 30

    assert CANARY not in reported.text()
    assert not any(CANARY in f"{each.getMessage()} {each.__dict__}" for each in caplog.records)
    assert not any(each.events for each in reported.spans)


def test_what_a_span_says(url: str, reported: Reported, api: Api) -> None:
    with limpet.open(url, otel=True) as store:
        scope = through(api, store).scope("s", "main", "graph")
        size = scope.save({"n": 1}).size
        second = scope.save({"n": 2})
        scope.load()
        list(scope.history())
        scope.delete_snapshot(second.id)

    engine = {"db.system.name": "sqlite"}
    kind = {"limpet.scope.kind": "graph"}
    first, _ = reported.named("commit")
    assert first.kind is trace.SpanKind.CLIENT
    assert first.status.is_unset
    assert first.attributes == {
        **engine,
        "db.operation.name": "commit",
        **kind,
        "limpet.state.size": size,
    }
    (load,) = reported.named("read_snapshots")
    assert (load.attributes or {})["limpet.state.size"] == size
    (history,) = reported.named("list_snapshots")
    assert (history.attributes or {})["db.response.returned_rows"] == 2
    (delete,) = reported.named("delete_snapshots")
    assert (delete.attributes or {})["limpet.deleted.count"] == 1


def test_what_the_metrics_count(url: str, reported: Reported, api: Api) -> None:
    with limpet.open(url, otel=True) as store:
        scope = through(api, store).scope("s")
        first = scope.save({"n": 1})
        scope.append("items", [1])
        with pytest.raises(Conflict):
            scope.save({"n": 3}, expect=first.revision)

    commit = {"db.system.name": "sqlite", "db.operation.name": "commit"}
    (saved,) = reported.points("limpet.state.saved")
    assert (saved["attributes"], saved["value"]) == (commit, 7 + len('{"n":1,"items":[1]}'))
    (conflicts,) = reported.points("limpet.conflicts")
    assert (conflicts["attributes"], conflicts["value"]) == (commit, 1)
    durations = [
        each
        for each in reported.points(DURATION)
        if each["attributes"]["db.operation.name"] == "commit"
    ]
    assert [(each["attributes"].get("error.type"), each["count"]) for each in durations] == [
        (None, 2),
        ("Conflict", 1),
    ]
    assert min(durations[0]["explicit_bounds"]) < 0.001


def test_an_error_is_its_class(url: str, reported: Reported) -> None:
    """Its message names the scope."""
    with limpet.open(url, otel=True) as store:
        scope = store.scope("s")
        first = scope.save({"n": 1})
        scope.save({"n": 2})
        with pytest.raises(Conflict):
            scope.save({"n": 3}, expect=first.revision)
    *_, last = reported.named("commit")
    assert (last.attributes or {})["error.type"] == "Conflict"
    assert last.status.status_code is trace.StatusCode.ERROR
    assert last.status.description is None
    assert not last.events


class Nested(Memory):
    """An engine whose driver reports spans of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.blocking = True

    def commit(self, commit: Commit) -> limpet.SnapshotInfo:
        with trace.get_tracer("driver").start_as_current_span("limpet.driver"):
            return super().commit(commit)


def test_the_spans_of_a_driver_are_below(reported: Reported, api: Api) -> None:
    with store_over(Nested(), otel=True) as store:
        through(api, store).scope("s").save({})
    (inner,), (outer,) = reported.named("driver"), reported.named("commit")
    assert inner.parent == outer.get_span_context()
    assert (outer.attributes or {})["db.system.name"] == "Nested"


class OnlyDrivers(Sampler):
    """Samples the span of a driver, and no other."""

    def should_sample(
        self, parent_context: Any, trace_id: int, name: str, *args: Any, **options: Any
    ) -> SamplingResult:
        chosen = ALWAYS_ON if name == "limpet.driver" else ALWAYS_OFF
        return chosen.should_sample(parent_context, trace_id, name)

    def get_description(self) -> str:
        return "only drivers"


def test_what_is_not_sampled_is_not_sampled_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's span has a parent, whose decision counts."""
    reported = Reported(monkeypatch, ParentBased(OnlyDrivers()))
    with store_over(Nested(), otel=True) as store:
        store.scope("s").save({})
    assert reported.spans == []
    assert len(reported.points("limpet.state.saved")) == 1


def test_an_sdk_may_come_later(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    with limpet.open(url, otel=True) as store:
        store.scope("s").save({"n": 1})
        reported = Reported(monkeypatch)
        store.scope("s").save({"n": 2})
    assert [each.name for each in reported.spans] == ["limpet.commit"]


@for_each("options", [{}, {"otel": False}, {"otel": "0"}])
def test_what_is_not_asked_for_adds_no_layer(options: dict[str, Any]) -> None:
    assert type(open_backend("memory:", **options)) is Engine
    backend = Memory()
    with store_over(backend, **options) as store:
        assert store.driver.opened.backend is backend


@for_each("bad", ["otel=yes", "slow_s=-1", "slow_s=soon"])
def test_options_that_are_not_acceptable(bad: str) -> None:
    with pytest.raises(InvalidInput, match=f"option=`{bad.partition('=')[0]}`"):
        limpet.open(f"memory:?{bad}")


def test_the_layers_have_what_an_engine_has() -> None:
    layered = open_backend("memory:", otel=True, slow_s=1)
    public = {name for name in vars(Backend) if not name.startswith("_")}
    assert public <= set(dir(layered))
    assert layered.capabilities == Memory().capabilities
    assert layered.blocking is False


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["memory", "directory", "postgres", "s3", "http"])
def test_every_engine(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, reported: Reported
) -> None:
    url, options = place_of(engine, request, tmp_path)
    with limpet.open(url, **options, otel=True) as store:
        use_everything(store)
    told = {"directory": "file", "postgres": "postgresql"}.get(engine, engine)
    assert {(each.attributes or {})["db.system.name"] for each in reported.spans} == {told}
    assert len({each.name for each in reported.spans}) > 15
    assert CANARY not in reported.text()
