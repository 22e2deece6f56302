"""Real agents of the SDK, with a stub for a model, on what Limpet keeps."""

import pytest

from limpet import ScopeKey, Store
from tests.interop.ground import LAYOUTS, NAMED, Ground
from tests.interop.places import Place
from tests.interop.sdk import Sdk

pytestmark = pytest.mark.timeout(300)  # the first test may have to install the SDK

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
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    known = theirs.converse("Grüße 👋", "add 2 3", history=True, app_state={"z": 1, "a": [{}]})

    head = ours.load()
    assert head is not None
    assert head.state == known
    assert list(head.state)[:3] == ["messages", "state", "systemPrompt"]
    assert list(head.state["state"]) == ["z", "a"]
    assert said(head.state) == ["Grüße 👋", "echo: Grüße 👋", "add 2 3", "the tool has spoken"]
    blocks = [block for message in head.state["messages"] for block in message["content"]]
    used = next(block["toolUse"] for block in blocks if "toolUse" in block)
    assert list(used["input"].items()) == [("b", 3), ("a", 2)]

    turns = [len(said(each.state)) for each in ours.load_many(theirs.ids())]
    assert turns == [2, 4]
    assert [info.id for info in ours.history()] == theirs.ids()[::-1]
    newest = ours.load(theirs.ids()[-1])
    assert newest is not None
    assert newest.state == known


def test_an_agent_goes_on_from_what_we_saved(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    message = {"role": "user", "content": [{"text": "from us"}], "trackingId": "t-1"}
    state = {"messages": [message], "state": {"mood": "calm"}, "systemPrompt": PROMPT}
    first = ours.save({**state, "modelState": {}})
    restored = theirs.restore()
    assert {key: restored[key] for key in state} == state
    assert theirs.restore(first.id) == restored

    theirs.converse("and you?")
    second = ours.load()
    assert second is not None
    assert said(second.state) == ["from us", "and you?", "echo: and you?"]
    assert second.state["state"] == {"mood": "calm"}
    third = ours.append("messages", [{**message, "content": [{"text": "us again"}]}])
    assert said(theirs.converse("last")) == [
        *("from us", "and you?", "echo: and you?", "us again", "last", "echo: last")
    ]
    assert [info.id for info in ours.history()] == [third.id, first.id]


def test_an_agent_goes_back_and_branches(ground: Ground, store: Store) -> None:
    """Our fork of its history is a conversation that another agent takes up."""
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    theirs.converse("one", "two", "three", history=True)
    first, second, third = theirs.ids()
    assert said(theirs.restore(second)) == ["one", "echo: one", "two", "echo: two"]
    ours.fork(second, scope_id="branch", patch={"state": {"bold": True}})
    branch = ground.theirs("chat-42", "branch")
    known = branch.converse("four", history=True)
    assert said(known) == ["one", "echo: one", "two", "echo: two", "four", "echo: four"]
    assert known["state"] == {"bold": True}
    assert said(theirs.restore()) == said(theirs.restore(third))
    assert len(list(store.scope("chat-42", "branch").ids())) == 2
    assert list(ours.ids()) == [first, second, third]


def test_a_graph_of_agents_is_kept(ground: Ground, store: Store) -> None:
    team = ScopeKey("chat-42", "team", "multiAgent")
    theirs = ground.theirs(*team)
    done = theirs.ask("orchestrate", sessionId="chat-42", graphId="team", prompt="go")
    assert done == {"status": "COMPLETED", "nodes": ["first", "second"]}
    head = store.scope(*team).load()
    assert head is not None
    assert head.state["orchestratorId"] == "team"
    assert [each["nodeId"] for each in head.state["state"]["results"]] == ["first", "second"]
    assert [info.key for info in store.scopes(kind="multiAgent")] == [team]

    # The next run begins with what we saved in its place, and adds to it.
    store.scope(*team).save(head.state)
    again = theirs.ask("orchestrate", sessionId="chat-42", graphId="team", prompt="go")
    assert again["nodes"] == ["first", "second", "first", "second"]
