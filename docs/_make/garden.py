"""The store in the pictures, with fixed ids, times and states."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import shake_256
from typing import NamedTuple

import limpet
from limpet.model import JSON, ScopeKey, SnapshotRef

NOW = datetime(2026, 5, 4, 18, 30, tzinfo=UTC)
SESSION = "ana/balcony-garden"
MAIN = ScopeKey(SESSION)
SHADE = ScopeKey(SESSION, "shade")
WINTER = ScopeKey(SESSION, "winter")

_CARE = """\
Water boxes 1 and 2 every evening.
Tie the tomatoes up in June.
Cut the basil before it flowers."""
_CARE_IN_SHADE = """\
Water boxes 1 and 2 every other evening.
Sow the parsley in March, it takes its time.
Cut the basil before it flowers."""
_SUNNY = {"tomatoes": "box 1", "basil": "box 2", "lettuce": "box 3"}
_SHADY = {"basil": "box 2", "lettuce": "box 1", "parsley": "box 1", "sorrel": "box 3"}
_BOXES = """\
box  litres  moisture  pH   sun
1    60      38 %      6.4  7.1 h
2    60      41 %      6.3  6.8 h
3    40      22 %      7.0  2.9 h"""
_SYLLABLES = [first + second for first in "bdfgklmnprstvwxz" for second in "aeiou"]


class OtherSession(NamedTuple):
    """A session that appears only in `limpet ls`."""

    session_id: str
    asks: str
    says: str
    age: timedelta
    snapshots: int
    status: str = "completed"
    kind: str = "agent"
    words: int = 60


_OTHERS = (
    OtherSession(
        "ana/recipe-box",
        "Dinner from leeks and two eggs?",
        "A leek tart, 40 minutes. Shall I list the steps?",
        *(timedelta(days=3), 4),
        words=45,
    ),
    OtherSession(
        "ben/deploy-checkout",
        "Deploy checkout 2.4 to staging",
        "Stopped: the health check failed three times.",
        *(timedelta(minutes=9), 23, "failed"),
        words=160,
    ),
    OtherSession(
        "ben/flaky-tests",
        "Why does test_refund fail one time in ten?",
        "It reads the clock twice. Here is a patch.",
        *(timedelta(hours=5), 61),
    ),
    OtherSession(
        "cleo/thesis-review",
        "Are the claims of chapter 3 supported?",
        "Claims 4 and 7 have no source. Shall I go on?",
        *(timedelta(hours=26), 12, "interrupted"),
        words=420,
    ),
    OtherSession(
        "nightly/digest",
        "Summarise the incidents of today",
        "Two of five reports are read.",
        *(timedelta(seconds=42), 7, "running", "run"),
        words=220,
    ),
    OtherSession(
        "ops/invoice-match",
        "Match the invoices of April",
        "All 112 are matched.",
        *(timedelta(days=12), 112, ""),
        words=30,
    ),
)


def build(url: str) -> None:
    """Fill an empty store."""
    with limpet.open(url) as store:
        for at, other in enumerate(_OTHERS):
            _fill(store, other, 0x20 + at)
        _Garden(store).grow()


def _id(moment: datetime, number: int) -> str:
    """Return an id as Limpet mints them, with a number instead of random bits."""
    ms = int(moment.timestamp() * 1000)
    chance = number * 0x9E3779B97F4A7C15 % (1 << 64)  # spreads small numbers over all bits
    tail = f"{chance:016x}"
    return f"{ms >> 16:08x}-{ms & 0xFFFF:04x}-7{tail[:3]}-8{tail[3:6]}-{tail[4:]}"


def _fill(store: limpet.Store, line: OtherSession, number: int) -> None:
    scope = store.scope(line.session_id, kind=line.kind)
    messages: list[JSON] = []
    for step in range(line.snapshots):
        is_last = step == line.snapshots - 1
        text = _prose(f"{line.session_id} {step}", line.words)
        text = line.says if is_last else text if step else line.asks
        role = "assistant" if step % 2 or is_last else "user"
        messages.append({"role": role, "content": text})
        moment = NOW - line.age - timedelta(minutes=4 * (line.snapshots - 1 - step))
        scope.save(
            {"messages": messages},
            id=_id(moment, number * 1000 + step),
            status=line.status if is_last else "completed",
            created_at=moment,
        )


def _prose(seed: str, words: int) -> str:
    """Return pseudo-random words, which compress like real ones."""
    chosen = shake_256(seed.encode()).digest(words * 3)
    syllables = [_SYLLABLES[byte % len(_SYLLABLES)] for byte in chosen]
    return " ".join("".join(syllables[at : at + 3]) for at in range(0, len(syllables), 3))


def _user(text: str) -> JSON:
    return {"role": "user", "content": text}


def _assistant(text: str) -> JSON:
    return {"role": "assistant", "content": text}


def _call(id: str, name: str, text: str, **input: JSON) -> JSON:
    call = {"type": "tool_use", "id": id, "name": name, "input": input}
    said = [{"type": "text", "text": text}] if text else []
    return {"role": "assistant", "content": [*said, call]}


def _result(id: str, text: str, *, is_error: bool = False) -> JSON:
    result = {"type": "tool_result", "tool_use_id": id, "content": text, "is_error": is_error}
    return {"role": "user", "content": [result]}


class _Garden:
    """The main session: an agent plans a garden, fails, goes back, and branches."""

    def __init__(self, store: limpet.Store) -> None:
        self._store = store
        self._count = 0
        self._moment = NOW - timedelta(minutes=57)

    def grow(self) -> None:
        """Save every step, in order."""
        asked = [_user("Plan my balcony: herbs and salad for two, 120 EUR.")]
        looked = [*asked, _call("t1", "read_sensors", "", place="balcony"), _result("t1", _BOXES)]
        planned = [*looked, _assistant("Tomatoes in box 1, basil in 2, lettuce in 3.")]
        self._save(MAIN, asked, {})
        self._save(MAIN, looked, {})
        plan = self._save(MAIN, planned, _planned(_SUNNY, 96))
        refused = [
            *planned,
            _call("t2", "order", "And an olive tree.", items=["tomato", "basil", "olive tree"]),
            _result("t2", "402: this is 38.00 EUR above the budget", is_error=True),
        ]
        self._save(MAIN, refused, _planned({**_SUNNY, "olive tree": "a tub"}, 158), status="failed")
        shaded = [*planned, _user("What if box 1 is in the shade?")]
        self._save(SHADE, planned, _planned(_SUNNY, 96), forked_from=SnapshotRef(MAIN, plan))
        self._save(SHADE, shaded, _planned(_SUNNY, 96))
        self._save(MAIN, planned, _planned(_SUNNY, 96), parent=plan)
        self._order(planned)
        measured = [
            *shaded,
            _call("t4", "sun_hours", "", box=1, months=["June", "July"]),
            _result("t4", "2.4 h a day"),
            _assistant("Then lettuce and parsley in box 1 instead of tomatoes, and sorrel in 3."),
        ]
        self._save(SHADE, measured, _planned(_SHADY, 71, _CARE_IN_SHADE))

    def _order(self, planned: Sequence[JSON]) -> None:
        ordered = [
            *planned,
            _user("No olive tree, then. Order the rest."),
            _call("t3", "order", "", items=["tomato", "basil", "lettuce"]),
            _result("t3", "confirmed, 96.00 EUR, delivery on Thursday"),
        ]
        done = [*ordered, _assistant("Ordered. Soak the boxes on Wednesday.")]
        self._save(MAIN, ordered, _planned(_SUNNY, 96))
        last = self._save(MAIN, done, _planned(_SUNNY, 96))
        later = [*done, _user("What grows there in winter?")]
        source = SnapshotRef(MAIN, last)
        self._save(WINTER, done, _planned(_SUNNY, 96), forked_from=source)
        self._save(WINTER, later, _planned(_SUNNY, 96), status="running")

    def _save(
        self,
        key: ScopeKey,
        messages: Sequence[JSON],
        plan: dict[str, JSON],
        *,
        parent: str | None = None,
        forked_from: SnapshotRef | None = None,
        status: str = "completed",
    ) -> str:
        self._count += 1
        self._moment += timedelta(minutes=4, seconds=13)
        saved = self._store.scope(*key).save(
            {**plan, "messages": list(messages)},
            id=_id(self._moment, self._count),
            parent=limpet.HEAD if parent is None else parent,
            status=status,
            created_at=self._moment,
            forked_from=forked_from,
        )
        return saved.id


def _planned(plants: dict[str, str], cost_eur: int, care: str = _CARE) -> dict[str, JSON]:
    return {"plants": plants, "cost_eur": cost_eur, "care": care}
