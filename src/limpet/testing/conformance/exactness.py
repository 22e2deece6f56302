"""Chapter: exactness. Promise 9 over anything that JSON can say."""

from hypothesis import HealthCheck, given, settings

from limpet import JSON, Scope
from limpet.testing.conformance._kit import Kit, present, spelled
from limpet.testing.conformance._values import json_values


class Exactness(Kit):
    """What goes in comes out."""

    # The suite is inherited, so one test runs in several classes; and each example saves more to
    # the same store, which is what a store is for.
    @settings(
        max_examples=20,
        deadline=None,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            HealthCheck.differing_executors,
            HealthCheck.too_slow,
        ],
    )
    @given(value=json_values())
    def test_promise_09_exact_round_trip_of_anything(self, scope: Scope, value: JSON) -> None:
        """Any JSON comes back as it was, alone or inside a state that grows."""
        kept = scope.save(value)
        assert spelled(present(scope.load(kept.id)).state) == spelled(value)
        scope.save({"items": [value]}, keep=False)
        scope.append("items", [value, value])

        assert spelled(present(scope.load()).state) == spelled({"items": [value] * 3})
        assert spelled(present(scope.load(kept.id)).state) == spelled(value)

    def test_promise_09_exact_round_trip_in_base_types(self, scope: Scope) -> None:
        """Tuples come back as lists, and subclasses of JSON's types as those types."""

        class Text(str):
            pass

        class Whole(int):
            pass

        class Members(dict[str, JSON]):
            pass

        scope.save(Members(a=(1, (Text("t"),)), b=Whole(7)))

        assert spelled(present(scope.load()).state) == "{'a': [1, ['t']], 'b': 7}"
