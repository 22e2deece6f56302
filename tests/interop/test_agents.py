"""Real agents of the SDK, with a stub for a model, on what Limpet keeps."""

import pytest

from limpet import ScopeKey, Store
from tests.interop.ground import LAYOUTS, NAMED, Ground
from tests.interop.places import Place
from tests.interop.sdk import Sdk
from tests.present import present

SCOPE = ScopeKey("chat-42", "planner")
PROMPT = "You repeat what you hear."


@pytest.fixture(params=[*LAYOUTS.values(), NAMED], ids=[*LAYOUTS, "named"])
def ground(sdk: Sdk, place: Place, request: pytest.FixtureRequest) -> Ground:
    return Ground(sdk, request.param, place)


def said(state: dict[str, list[dict[str, list[dict[str, str]]]]]) -> list[str]:
    """Return the texts of a conversation, in order."""
    return [
        block["text"]
        for message in state["messages"]
        for block in message["content"]
        if "text" in block
    ]


def test_we_read_what_an_agent_left(ground: Ground, store: Store) -> None:
    ours, theirs = ground.ours(*SCOPE), ground.theirs(*SCOPE)
    known = theirs.converse("Grüße 👋", "add 2 3", history=True, app_state={"z": 1, "a": [{}]})
    ground.pull(store)
    head = present(store.scope(*SCOPE).load())
    for state in (head.state, ours.load()["data"]):
        assert state == known
        assert list(state)[:3] == ["messages", "state", "systemPrompt"]
        assert list(state["state"]) == ["z", "a"]
        assert said(state) == ["Grüße 👋", "echo: Grüße 👋", "add 2 3", "the tool has spoken"]
        blocks = [block for message in state["messages"] for block in message["content"]]
        used = next(block["toolUse"] for block in blocks if "toolUse" in block)
        assert list(used["input"].items()) == [("b", 3), ("a", 2)]

    assert ours.ids() == theirs.ids() == list(store.scope(*SCOPE).ids())
    imported = [each.state for each in store.scope(*SCOPE).load_many(ours.ids())]
    for states in (imported, [ours.load(id)["data"] for id in ours.ids()]):
        assert [len(said(state)) for state in states] == [2, 4]
        assert states[-1] == known


def test_an_agent_goes_on_from_what_we_saved(ground: Ground, store: Store) -> None:
    ours, theirs = ground.ours(*SCOPE), ground.theirs(*SCOPE)
    message = {"role": "user", "content": [{"text": "from us"}], "trackingId": "t-1"}
    state = {"messages": [message], "state": {"mood": "calm"}, "systemPrompt": PROMPT}
    ours.save_latest({**state, "modelState": {}})
    restored = theirs.restore()
    assert {key: restored[key] for key in state} == state
    theirs.converse("and you?")
    ground.pull(store)
    chat = store.scope(*SCOPE)
    second = present(chat.load())
    assert said(second.state) == ["from us", "and you?", "echo: and you?"]
    assert second.state["state"] == {"mood": "calm"}
    third = chat.append("messages", [{**message, "content": [{"text": "us again"}]}])
    ground.push(store)
    assert theirs.ids() == [third.id]
    assert said(theirs.converse("last")) == [
        *("from us", "and you?", "echo: and you?", "us again", "last", "echo: last")
    ]


def test_an_agent_goes_back_and_branches(ground: Ground, store: Store) -> None:
    """Our fork of its history is a conversation that another agent takes up."""
    theirs = ground.theirs(*SCOPE)
    theirs.converse("one", "two", "three", history=True)
    _, second, third = theirs.ids()
    assert said(theirs.restore(second)) == ["one", "echo: one", "two", "echo: two"]
    ground.pull(store)
    store.scope(*SCOPE).fork(second, scope_id="branch", patch={"state": {"bold": True}})
    ground.push(store)
    known = ground.theirs("chat-42", "branch").converse("four", history=True)
    assert said(known) == ["one", "echo: one", "two", "echo: two", "four", "echo: four"]
    assert known["state"] == {"bold": True}
    assert said(theirs.restore()) == said(theirs.restore(third))
    assert len(ground.ours("chat-42", "branch").ids()) == 2


def test_a_graph_of_agents_is_kept(ground: Ground) -> None:
    team = ScopeKey("chat-42", "team", "multiAgent")
    ours, theirs = ground.ours(*team), ground.theirs(*team)
    done = theirs.ask("orchestrate", sessionId="chat-42", graphId="team", prompt="go")
    assert done == {"status": "COMPLETED", "nodes": ["first", "second"]}
    head = ours.load()
    assert head["data"]["orchestratorId"] == "team"
    assert [each["nodeId"] for each in head["data"]["state"]["results"]] == ["first", "second"]

    # The next run begins with what we saved in its place, and adds to it.
    ours.put(None, head)
    again = theirs.ask("orchestrate", sessionId="chat-42", graphId="team", prompt="go")
    assert again["nodes"] == ["first", "second", "first", "second"]
