"""The private names of LangGraph and pydantic that we use are where we expect them."""

import importlib
import warnings

import pytest
from langchain_core.prompts import PromptTemplate
from langgraph._internal import _constants as constants
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.pregel.debug import rm_pregel_keys
from pydantic import BaseModel

from limpet.compat.langgraph import upstream


def test_the_serializer_of_langgraph_is_as_we_know_it() -> None:
    hint = "JsonPlusSerializer._allowed_msgpack_modules moved: see upstream.allowed_modules"
    listed, nothing, all_ = (
        JsonPlusSerializer(allowed_msgpack_modules=each)
        for each in ([("shop", "Order")], None, True)
    )
    assert upstream.allowed_modules(listed), hint
    assert not upstream.allowed_modules(nothing), hint
    assert upstream.allows_all(all_), hint
    assert not upstream.allows_all(nothing), hint
    assert ("datetime", "datetime") in upstream.SAFE_MSGPACK_TYPES
    assert {len(each) for each in upstream.SAFE_MSGPACK_TYPES} == {2}
    module, name = upstream.DELTA_SNAPSHOT
    assert hasattr(importlib.import_module(module), name), f"{module}.{name} moved"
    codes = {name: each for name, each in vars(jsonplus).items() if name.startswith("EXT_")}
    assert sorted(codes.values()) == list(range(8)), f"serde.py: {codes}"


def test_the_format_of_langchain_is_read_without_a_warning() -> None:
    value = PromptTemplate.from_template("{a}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tree = upstream.lc_dump(value)
        assert upstream.lc_load(tree, allowed_objects=[PromptTemplate]) == value
    with pytest.raises(ValueError, match="not allowed"):
        upstream.lc_load(tree, allowed_objects=[])


def test_a_model_is_made_of_its_parts() -> None:
    class Model(BaseModel):
        number: int

    made = object.__new__(Model)
    upstream.set_fields(made, {"number": 1})
    upstream.set_fields_set(made, {"number"})
    upstream.set_extra(made, None)
    upstream.set_private(made, None)
    assert made == Model(number=1), "pydantic keeps the parts of a model elsewhere"


def test_runs_are_known_by_their_config() -> None:
    assert constants.CONFIG_KEY_RUNTIME in upstream.__dict__.values()
    assert constants.CONFIG_KEY_TASK_ID in upstream.__dict__.values()
    hidden = rm_pregel_keys({"configurable": {upstream.LEASE: 1, "thread_id": "t"}})
    assert hidden == {"configurable": {"thread_id": "t"}}
