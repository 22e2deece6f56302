"""Snapshots of both SDKs in the shapes that they write, for Hypothesis to choose from."""

import base64
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

Documents = SearchStrategy[dict[str, Any]]

_NAMES = st.sampled_from(["approve", "über", "a:b", ""])
_TEXT = st.text(max_size=6)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXT, inner, max_size=2),
    max_leaves=4,
)
_OBJECT = st.dictionaries(_TEXT, _JSON, max_size=2)
_IDS = st.sampled_from(["tu-1", "tu-2"])


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


class Shapes:
    """What one of the SDKs writes."""

    def __init__(self, *, is_python: bool) -> None:
        self.is_python = is_python

    def name(self, typescript: str, python: str) -> str:
        return python if self.is_python else typescript

    def bytes(self) -> SearchStrategy[Any]:
        plain = st.binary(max_size=4).map(_base64)
        if not self.is_python:
            return plain
        return plain.map(lambda data: {"__bytes_encoded__": True, "data": data})

    def media(self) -> Documents:
        location: dict[str, Any] = {"location": {"type": "s3", "uri": "s3://b/k"}}
        source: Documents = st.fixed_dictionaries({"bytes": self.bytes()}) | st.just(location)
        formats = st.sampled_from(["png", "mp4", self.name("3gp", "three_gp")])
        return st.fixed_dictionaries({"format": formats, "source": source})

    def reasoning(self) -> Documents:
        text: Documents = st.fixed_dictionaries({"text": _TEXT}, optional={"signature": _TEXT})
        hidden: Documents = st.fixed_dictionaries({"redactedContent": self.bytes()})
        if self.is_python:
            text = text.map(lambda found: {"reasoningText": found})
        return text | hidden

    def citations(self) -> Documents:
        at = {"documentIndex": 0, "start": 1, "end": 2}
        search = self.name("searchResult", "searchResultLocation")
        kinds = st.sampled_from(["documentChar", "web", search])
        location = kinds.map(lambda kind: {kind: at} if self.is_python else {"type": kind, **at})
        citation = st.fixed_dictionaries({"location": location, "title": _TEXT})
        content = st.just([{"text": "cited"}])
        return st.fixed_dictionaries(
            {"citations": st.lists(citation, max_size=2), "content": content}
        )

    def block(self) -> Documents:
        result = st.one_of(
            st.fixed_dictionaries({"text": _TEXT}),
            st.fixed_dictionaries({"json": _JSON}),
            st.fixed_dictionaries({"image": self.media()}),
        )
        use = {"name": _TEXT, "toolUseId": _IDS, "input": _JSON}
        results = st.lists(result, max_size=2)
        kinds: dict[str, SearchStrategy[Any]] = {
            "text": _TEXT,
            "toolUse": st.fixed_dictionaries(use, optional={"reasoningSignature": _TEXT}),
            "toolResult": self.tool_result(results),
            "image": self.media(),
            "video": self.media(),
            "document": self.media(),
            "guardContent": st.just({"text": {"text": "x"}}),
            "cachePoint": st.just({self.name("cacheType", "type"): "default"}),
            self.name("reasoning", "reasoningContent"): self.reasoning(),
            self.name("citations", "citationsContent"): self.citations(),
            "news": _OBJECT,
        }
        return st.one_of(*(st.fixed_dictionaries({name: each}) for name, each in kinds.items()))

    def tool_result(self, content: SearchStrategy[Any]) -> Documents:
        return st.fixed_dictionaries(
            {"toolUseId": _IDS, "status": st.just("success"), "content": content}
        )

    def message(self) -> Documents:
        return st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "assistant"]), "content": st.lists(self.block())},
            optional={self.name("trackingId", "tracking_id"): _TEXT, "metadata": _OBJECT},
        )

    def data(self) -> Documents:
        messages = st.lists(self.message(), max_size=3)
        prompt = st.none() | st.lists(st.just({"text": "x"}) | self._cache_point(), max_size=2)
        stash = st.just({"location": "inline", "entries": {"a": 1}}) | st.just(
            {"location": "external", self.name("storageType", "storage_type"): "S3Storage"}
        )
        return st.fixed_dictionaries(
            {"messages": messages, "state": _OBJECT},
            optional={
                self.name("systemPrompt", "system_prompt"): prompt | _TEXT,
                self.name("modelState", "model_state"): _OBJECT,
                self.name("interrupts", "interrupt_state"): self.waiting(),
                "stash": stash,
                "conversation_manager_state": _OBJECT,
                "news": _JSON,
            },
        )

    def _cache_point(self) -> Documents:
        return st.just({"cachePoint": {self.name("cacheType", "type"): "default", "ttl": "5m"}})

    def waiting(self) -> SearchStrategy[Any]:
        return self._python_waiting() if self.is_python else st.none() | self._typescript_waiting()

    def _typescript_waiting(self) -> Documents:
        starts = ("tool:tu-1", "hook:beforeToolCall:tu-1", "hook:beforeTools", "odd")
        said = {"reason": _JSON, "response": _JSON, "source": _TEXT}
        record = st.builds(
            lambda start, name, more: {"id": f"{start}:{name}", "name": name, **more},
            st.sampled_from(starts),
            _NAMES,
            st.fixed_dictionaries({}, optional=said),
        )
        results = self.tool_result(st.just([])).map(lambda found: {"toolResult": found})
        pending = st.fixed_dictionaries(
            {
                "assistantMessageData": self.message(),
                "completedToolResults": st.lists(results, max_size=2).map(
                    lambda found: {each["toolResult"]["toolUseId"]: each for each in found}
                ),
            }
        )
        return st.fixed_dictionaries(
            {
                "interrupts": st.lists(record, max_size=2).map(
                    lambda found: {each["id"]: each for each in found}
                ),
                "activated": st.booleans(),
            },
            optional={"pendingToolExecution": pending},
        )

    def _python_waiting(self) -> Documents:
        starts = ("v1:tool_call:tu-1", "v1:before_tools", "v1:agent_as_tool:tu-1")
        hashed = "5cf56bed-067e-5438-a1ef-dbfa3405e45d"  # of "approve"
        record = st.builds(
            lambda start, name, reason, response: {
                "id": f"{start}:{hashed}",
                "name": name,
                "reason": reason,
                "response": response,
            },
            st.sampled_from(starts),
            _NAMES,
            _JSON,
            _JSON,
        )
        pending = st.fixed_dictionaries(
            {
                "assistant_message": self.message(),
                "completed_tool_results": st.lists(self.tool_result(st.just([])), max_size=2),
            }
        )
        return st.fixed_dictionaries(
            {
                "interrupts": st.lists(record, max_size=2).map(
                    lambda found: {each["id"]: each for each in found}
                ),
                "context": st.just({}) | _OBJECT,
                "activated": st.booleans(),
            },
            optional={"pending_tool_execution": pending},
        )

    def document(self) -> Documents:
        return st.fixed_dictionaries(
            {
                "scope": st.just("agent"),
                self.name("schemaVersion", "schema_version"): st.just("1.0"),
                self.name("createdAt", "created_at"): st.just("2026-11-15T00:09:36.272Z"),
                "data": self.data(),
                self.name("appData", "app_data"): _OBJECT,
            },
            optional={"news": _JSON},
        )


typescript = Shapes(is_python=False).document()
python = Shapes(is_python=True).document()
