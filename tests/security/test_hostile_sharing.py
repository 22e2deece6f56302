"""Small values that refer to each other so often that their JSON would fill all memory."""

import pytest

from tests.security import hostile


def test_a_shared_state_is_refused_before_memory_runs_out() -> None:
    """Each value takes at most 100 MB; as JSON some gigabytes at the least."""
    hostile.run(
        """
        def nested(part, some):
            value = part
            for _ in range(150):
                value = [value, *some(part)]
            return value

        values = {
            "lists": lambda: bomb(30, 1),
            "lists that need the walk": lambda: bomb(30, (2**70,)),
            "objects": lambda: bomb(30, {"k": "v"}),
            "few long texts": lambda: ["x" * 60_000_000] * 32,
            "a long text on every level": lambda: nested("x" * 60_000_000, lambda t: [t] * 30),
            "a long key on every level": lambda: nested({"x" * 900_000: 1}, lambda t: [t] * 9),
            "long texts between short ones": lambda: nested(
                "x" * 6_000_000, lambda each: ["" if i % 3 == 0 else each for i in range(63)]
            ),
            "few long lists": lambda: [[0] * 10_000_000] * 30,
            "wide integers": lambda: bomb(6, 10**4200),
            "integers": lambda: [[2**63] * 1_000_000] * 70,
        }
        with limpet.open("memory:") as store:
            for name, make in values.items():
                value = make()
                refused(limpet.InvalidInput, lambda: store.scope(name).save({"x": value}))
                value = None
        """,
        seconds=30,
    )


def test_every_argument_is_bounded() -> None:
    hostile.run(
        """
        import asyncio
        from dataclasses import dataclass, replace

        @dataclass
        class Holder:
            parts: list

        value = bomb(30, 1)
        bad = limpet.InvalidInput
        with limpet.open("memory:", default=limpet.jsonable) as store:
            scope = store.scope("s")
            id = scope.save({}).id
            refused(bad, lambda: scope.save(value))
            refused(bad, lambda: scope.save({"x": Holder(value)}))
            refused(bad, lambda: scope.save({}, metadata={"x": value}))
            refused(bad, lambda: scope.save({}, metadata={"strands": value}))
            refused(bad, lambda: scope.save({}, labels={"x": value}))
            refused(bad, lambda: scope.append("k", [value]))
            refused(bad, lambda: scope.update(id, lambda found: replace(found, state=value)))
            refused(bad, lambda: scope.fork(id, patch={"x": value}))
            refused(bad, lambda: scope.fork(id, patch=lambda state: value))
            refused(bad, lambda: scope.set_note("n", value))
            refused(bad, lambda: store.scope("t", model=Holder).save(Holder(value)))

        # Strings that `default` makes, each time another one.
        with limpet.open("memory:", default=lambda value: "x" * 1_000_000) as store:
            refused(bad, lambda: store.scope("s").save([object()] * 100_000))

        async def save():
            async with limpet.open_async("memory:") as store:
                await store.scope("s").save(value)

        refused(bad, lambda: asyncio.run(save()))
        """,
        seconds=20,
    )


@pytest.mark.slow  # because of what they import
def test_what_integrations_convert_themselves_is_bounded() -> None:
    hostile.run(
        """
        from limpet.compat.agentos.records import patch_of
        from limpet.compat.json_files import dump_indented
        from langchain_core.messages import HumanMessage
        from limpet.compat.langgraph import LimpetSaver, LimpetStore

        value = bomb(30, 1)
        bad = limpet.InvalidInput
        refused(bad, lambda: dump_indented(bomb(12, 1), what="file"))
        refused(bad, lambda: patch_of({"scratch": {"x": bomb(12, 1)}}))
        with limpet.open("memory:") as store:
            saver = LimpetSaver(store)
            message = HumanMessage("x", additional_kwargs={"x": value})
            for held in (value, {"x": value}, [message], (1, value), {1: value}):
                checkpoint = {"v": 4, "id": "1f0", "ts": "", "versions_seen": {}}
                checkpoint |= {"channel_values": {"x": held}, "channel_versions": {"x": 1}}
                at = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
                refused(bad, lambda: saver.put(at, checkpoint, {}, {"x": 1}))
            items = LimpetStore(store)
            refused(bad, lambda: items.search((), filter={"x": value}))
            refused(bad, lambda: items.put(("n",), "k", {"x": value}))
        """,
        seconds=20,
    )
