"""What the scripts do that `test_entry_points.py` starts, each with a class `Item`."""

import json
import re
import sys
from typing import Any

import limpet
from limpet import InvalidInput
from limpet.compat.langgraph import LimpetSaver
from tests.compat.langgraph.kit import checkpoint, config


def save(url: str, thread_id: str, item: Any) -> None:
    with limpet.open(url) as store:
        saver = LimpetSaver(store, allow=type(item))
        saver.put(config(thread_id), checkpoint(1, item=item), {}, {})


def read(url: str, thread_ids: list[str], names: dict[str, Any]) -> None:
    """Print each refusal, and what is read after its lines are pasted, else with `Item` listed."""
    found = {}
    with limpet.open(url) as store:
        for each in thread_ids:
            space = {**names, "store": store, "LimpetSaver": LimpetSaver}
            advice = refusal(LimpetSaver(store), each)
            lines = re.search(r"`([^`]*LimpetSaver\(.*\))`", advice)
            pasted = lines[1] if lines else "LimpetSaver(store, allow=[Item])"
            *imports, made = pasted.split("; ")
            exec("; ".join(imports), space)
            value = eval(made, space).get(config(each))["channel_values"]["item"]
            assert type(value) is space["Item"], type(value)
            found[each] = [advice, repr(value)]
    loaded = [each for each in ("worker", "app.worker") if each in sys.modules]
    sys.stdout.write(json.dumps([found, loaded]))


def refusal(saver: LimpetSaver, thread_id: str) -> str:
    try:
        saver.get_tuple(config(thread_id))
    except InvalidInput as cause:
        return str(cause)
    raise AssertionError(thread_id)
