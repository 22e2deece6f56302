"""The agent of the demo that is at work: a process of its own, which saves every second or two.

`python -m limpet.inspector.demo.agent URL PACE_S` works until its standard input is closed, which
also happens when its parent is killed.
"""

import select
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any

from limpet import runs
from limpet.api.store import Store
from limpet.errors import Conflict
from limpet.inspector.demo import stories
from limpet.opening import open as open_store

RUN = "live/slow-checkout"
KEPT_MAX = 60  # snapshots of the rounds before
_WORDS = 6  # of an answer that is being written, in each draft


def work(url: str, pace_s: float) -> None:
    """Tell the story of the agent again and again, until the parent has gone."""
    with open_store(url) as store:
        scope = store.scope(RUN, kind="run")
        scope.set_note("title", "Live: why is the checkout slow?")
        round = 0
        while not _has_parent_gone(pace_s):
            round += 1
            # A person may restore, abort or delete the run: then it begins again.
            with suppress(Conflict), _begun(store) as run:
                for state, keep in _states(round):
                    run.step(state, keep=keep, labels={"round": str(round)})
                    if _has_parent_gone(pace_s):
                        return
            scope.prune(keep_last=KEPT_MAX)


def _begun(store: Store) -> AbstractContextManager[runs.Run]:
    asked: Any = {"messages": stories.messages_of(stories.INCIDENT[:1], stories.openai)}
    return runs.start(store, RUN, task="incident", owner="agent-7", initial=asked, again=True)


def _states(round: int) -> Iterator[tuple[Any, bool]]:
    """Yield the states of one round, and whether each is kept; answers are written in drafts."""
    messages = stories.messages_of(stories.INCIDENT, stories.openai)
    for at, message in enumerate(messages):
        before = messages[:at]
        words = (message["content"] or "").split(" ") if message["role"] == "assistant" else []
        for end in range(_WORDS, len(words), _WORDS):
            written = {**message, "content": " ".join(words[:end])}
            yield {"round": round, "messages": [*before, written]}, False
        yield {"round": round, "messages": [*before, message]}, True


def _has_parent_gone(wait_s: float) -> bool:
    return bool(select.select([sys.stdin], [], [], wait_s)[0])


if __name__ == "__main__":
    work(sys.argv[1], float(sys.argv[2]))
