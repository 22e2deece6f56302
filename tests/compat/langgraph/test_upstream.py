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


def test_the_allow_list_of_the_serializer_is_found() -> None:
    hint = "JsonPlusSerializer._allowed_msgpack_modules moved: see upstream.allowed_modules"
    listed = [("shop", "Order")]
    assert upstream.allowed_modules(JsonPlusSerializer(allowed_msgpack_modules=listed)), hint
    assert not upstream.allowed_modules(JsonPlusSerializer(allowed_msgpack_modules=None)), hint
    assert upstream.allows_all(JsonPlusSerializer(allowed_msgpack_modules=True)), hint
    assert not upstream.allows_all(JsonPlusSerializer(allowed_msgpack_modules=None)), hint


def test_the_safe_types_are_pairs_of_names() -> None:
    hint = "langgraph.checkpoint.serde._msgpack.SAFE_MSGPACK_TYPES has another form"
    assert ("datetime", "datetime") in upstream.SAFE_MSGPACK_TYPES, hint
    assert {len(each) for each in upstream.SAFE_MSGPACK_TYPES} == {2}, hint


def test_the_class_of_delta_snapshots_is_found() -> None:
    module, name = upstream.DELTA_SNAPSHOT
    assert hasattr(importlib.import_module(module), name), f"{module}.{name} moved"


def test_the_extension_codes_are_those_that_an_import_checks() -> None:
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
    upstream.SETTERS.fields(made, {"number": 1})
    upstream.SETTERS.fields_set(made, {"number"})
    upstream.SETTERS.extras(made, None)
    upstream.SETTERS.private(made, None)
    assert made == Model(number=1), "pydantic keeps the parts of a model elsewhere"


def test_runs_are_known_by_their_config() -> None:
    assert constants.CONFIG_KEY_RUNTIME in upstream.__dict__.values()
    assert constants.CONFIG_KEY_TASK_ID in upstream.__dict__.values()
    hidden = rm_pregel_keys({"configurable": {upstream.LEASE: 1, "thread_id": "t"}})
    assert hidden == {"configurable": {"thread_id": "t"}}
