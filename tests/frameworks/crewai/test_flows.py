"""Real flows of CrewAI, saved by each of the ways that it has."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crewai.flow.async_feedback import HumanFeedbackPending
from crewai.flow.flow import Flow, listen, start
from crewai.flow.human_feedback import human_feedback
from crewai.flow.persistence import persist
from crewai.flow.persistence.factory import set_flow_persistence_factory
from crewai.state.checkpoint_config import CheckpointConfig
from pydantic import BaseModel

import limpet
from limpet.compat.crewai import LimpetFlowPersistence


class Talk(BaseModel):
    id: str = ""
    said: list[str] = []


def flow_of(persistence: LimpetFlowPersistence | None) -> Any:
    @persist(persistence)
    class Chat(Flow[Talk]):
        _skip_auto_memory = True  # which would load a vector database

        @start()
        def hear(self) -> str:
            self.state.said.append("question")
            return "answer"

        @listen(hear)
        def reply(self, answer: str) -> str:
            self.state.said.append(answer)
            return answer

    return Chat


def methods(store: limpet.Store, id: str) -> list[str]:
    return [info.labels["method"] for info in store.scope(id, kind="flow").history()][::-1]


@pytest.fixture
def default_of_the_process(memory: limpet.Store) -> Iterator[None]:
    set_flow_persistence_factory(lambda: LimpetFlowPersistence(memory))
    yield
    set_flow_persistence_factory(None)


def test_a_decorated_flow_is_saved_and_restored(store: limpet.Store) -> None:
    chat = flow_of(LimpetFlowPersistence(store))
    assert chat(suppress_flow_events=True).kickoff(inputs={"id": "chat-42"}) == "answer"
    assert methods(store, "chat-42") == ["hear", "reply"]

    again = chat(suppress_flow_events=True)
    again.kickoff(inputs={"id": "chat-42"})
    assert again.state.said == ["question", "answer"] * 2

    hear = [*store.scope("chat-42", kind="flow").history()][-1]
    forked = LimpetFlowPersistence(store).fork("chat-42", hear)
    branch = chat(suppress_flow_events=True)
    branch.kickoff(inputs={"id": forked})
    assert branch.state.said == ["question", "question", "answer"]
    assert methods(store, forked) == ["hear", "hear", "reply"]
    assert methods(store, "chat-42") == ["hear", "reply"] * 2


@pytest.mark.usefixtures("default_of_the_process")
def test_the_default_of_the_process(memory: limpet.Store) -> None:
    flow_of(None)(suppress_flow_events=True).kickoff(inputs={"id": "chat-42"})
    assert methods(memory, "chat-42") == ["hear", "reply"]


class Later:
    """Pauses the flow, as a form on a web page would."""

    def request_feedback(self, context: Any, flow: Any) -> str:
        raise HumanFeedbackPending(context=context)


def test_a_flow_waits_for_a_person_and_goes_on(store: limpet.Store) -> None:
    persistence = LimpetFlowPersistence(store)

    @persist(persistence)
    class Article(Flow[dict[str, Any]]):
        _skip_auto_memory = True

        @start()
        @human_feedback(message="publish?", provider=Later())
        def write(self) -> str:
            self.state["draft"] = "Limpets"
            return "Limpets"

        @listen(write)
        def publish(self, review: Any) -> str:
            self.state["published"] = review.feedback
            return "done"

    paused = Article(suppress_flow_events=True).kickoff(inputs={"id": "article-7"})
    assert isinstance(paused, HumanFeedbackPending)
    assert [(i.status, i.labels) for i in store.scope("article-7", kind="flow").history()] == [
        ("waiting", {"method": "write"})
    ]
    resumed = Article.from_pending("article-7", persistence, suppress_flow_events=True)
    assert resumed.resume("yes") == "done"
    saved = [
        (i.status, i.labels["method"]) for i in store.scope("article-7", kind="flow").history()
    ][::-1]
    assert saved == [("answered", "write"), ("", "write"), ("", "publish")]
    assert (persistence.load_state("article-7") or {})["published"] == "yes"
    with pytest.raises(ValueError, match="No pending feedback"):
        Article.from_pending("article-7", persistence)


@pytest.mark.slow
def test_a_checkpoint_of_crewai_finds_the_store_again(memory: limpet.Store, tmp_path: Path) -> None:
    chat = flow_of(LimpetFlowPersistence(memory))
    config = CheckpointConfig(location=str(tmp_path), on_events=["method_execution_finished"])
    chat(checkpoint=config).kickoff(inputs={"id": "chat-42"})
    (first, *_) = sorted(tmp_path.rglob("*.json"))
    restored = chat.from_checkpoint(CheckpointConfig(restore_from=str(first)))
    assert isinstance(restored.persistence, LimpetFlowPersistence)
    restored.persistence.save_state("chat-42", "later", {"id": "chat-42"})
    assert methods(memory, "chat-42") == ["hear", "reply", "later"]


def test_a_store_that_is_not_open_is_not_found(memory: limpet.Store) -> None:
    fields = LimpetFlowPersistence(memory).model_dump(mode="json")
    assert fields == {"persistence_type": "LimpetFlowPersistence", "url": "memory:"}
    with pytest.raises(limpet.InvalidInput, match="open store"):
        LimpetFlowPersistence.model_validate({**fields, "url": "sqlite:///elsewhere.db"})
