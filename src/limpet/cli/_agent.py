"""The agent of the demo: scripted, with tools, without network or model.

It runs in a process of its own (`python -m limpet.cli._agent`), saves its state after every
step, and reports each event to its parent as a line of JSON through a pipe.
"""

import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import limpet
from limpet.opening import CLOCK

SESSION = "trip-to-lisbon"
TASK = "Plan two days in Lisbon for a family of four."
FORK_STEP = 7  # the agent has asked, and has no answer yet


class Step(NamedTuple):
    who: str
    content: str
    asked: Mapping[str, Any] | None = None  # the arguments of a tool call
    booked: tuple[str, str, int] | None = None  # what, when, and for how many euros


def _lunch(where: str, place: str, hour: str, euros: int) -> tuple[Step, ...]:
    asked, four = {"place": place, "people": 4}, f"A table for four {where}, Friday at {hour}."
    at = f"Fri {13 if hour == 'one' else 14}:00"
    return (
        Step("user", "We arrive on Friday at ten and leave on Sunday."),
        Step("agent", "The weather first: the rest depends on it."),
        Step("weather", "Friday: sunny, 24°. Saturday: rain until two.", {"city": "Lisbon"}),
        Step("agent", "So the castle on Friday, and the museum on Saturday."),
        _seats("castle", "Friday at eleven", ("castle", "Fri 11:00", 60)),
        Step("maps", "Tram 28 to the castle: five stops, 17 minutes.", {"to": "castle"}),
        Step("agent", "Lunch near the castle: in the garden, or by the river?"),
        Step("user", f"{where.capitalize()}, please."),
        Step("tables", four, asked, ("lunch", at, euros)),
        _seats("museum", "Saturday at ten", ("museum", "Sat 10:00", 48)),
    )


def _seats(place: str, when: str, booked: tuple[str, str, int]) -> Step:
    asked = {"place": place, "seats": 4}
    return Step("tickets", f"Four seats for the {place}, {when}.", asked, booked)


_AIRPORT = Step("maps", "By metro to the airport on Sunday: 25 minutes.", {"to": "airport"})
_BOAT = "Four places on the boat, Saturday at three."
PLANS: Mapping[str, tuple[Step, ...]] = {
    "garden": (
        *_lunch("in the garden", "garden", "one", 84),
        Step("agent", "After the rain there is time for the river."),
        Step("boats", _BOAT, {"places": 4}, ("boat", "Sat 15:00", 72)),
        _AIRPORT,
        Step("agent", "That is the plan, hour by hour. Have a good trip!"),
    ),
    "river": (
        *_lunch("by the river", "river", "two", 96),
        Step("agent", "You have seen the river by then, so no boat."),
        _AIRPORT,
        Step("agent", "That is the plan, with a free afternoon."),
    ),
}


def state_after(steps: int, lunch: str = "garden") -> dict[str, Any]:
    """Return the agent's state after some steps of the script."""
    state: dict[str, Any] = {"task": TASK, "lunch": lunch, "step": 0, "euros": 0}
    state |= {"bookings": [], "messages": []}
    for _ in range(steps):
        take_step(state)
    return state


def take_step(state: dict[str, Any]) -> None:
    step = PLANS[state["lunch"]][state["step"]]
    state["step"] += 1
    messages = state["messages"]
    number = 1 + sum(each["id"].startswith(f"{step.who}-") for each in messages)
    message = {"id": f"{step.who}-{number}", "role": step.who, "content": step.content}
    if step.asked is not None:
        message |= {"role": "tool", "name": step.who, "args": step.asked}
    messages.append(message)
    if step.booked is not None:
        state["bookings"].append(dict(zip(("id", "at", "euros"), step.booked, strict=True)))
        state["euros"] += step.booked[-1]


def run_agent(url: str, scope_id: str, step_s: float) -> None:
    """Continue from the last saved step, and save after every step."""
    with limpet.open(url) as store:
        scope = store.scope(SESSION, scope_id)
        head = scope.load()
        state = state_after(0) if head is None else head.state
        revision = None if head is None else head.revision
        steps = len(PLANS[state["lunch"]])
        report(event="begin", step=state["step"] + 1)
        while state["step"] < steps:
            CLOCK.sleep(step_s)
            take_step(state)
            begin = CLOCK.monotonic()
            # `expect` gives a second agent in the same scope a Conflict: they never interleave.
            info = scope.save(
                state,
                status="running" if state["step"] < steps else "completed",
                labels={"step": f"{state['step']:02}"},
                metadata={"process": os.getpid()},
                expect=revision,
            )
            revision = info.revision
            took_ms = (CLOCK.monotonic() - begin) * 1000
            # Only now is the step acknowledged: it is on disk.
            report(event="saved", step=state["step"], id=info.id, took_ms=took_ms)


def report(**event: Any) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    # Ctrl-C reaches every process of the terminal; the parent ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Without a parent, end quietly.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    run_agent(sys.argv[1], sys.argv[2], float(sys.argv[3]))
