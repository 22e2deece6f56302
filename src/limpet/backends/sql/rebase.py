"""Rewriting bodies because what they build on is going away.

All is read before anything is changed, and only what replaces a row is kept, so memory holds a few
states at a time. A body may be written against one that stood before it in the order of
(length of its old chain, `order`), which no cycle can satisfy.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from limpet.core import codec
from limpet.core.deltas import delta
from limpet.core.deltas.chain import BodyRow, Nonces, ReadState, body_row
from limpet.core.encryption import Cipher, WrongKeys
from limpet.errors import Corrupt

_DEPTH_MAX = 256  # rows of a chain, and one more for each 4 KiB of state
_DEPTH_BYTES = 4 * 1024
_GROUPS_MAX = 4
_CHAINED = 32  # states that are written one against the other
_WHOLE_SHARE = 8  # a delta above this part of the state is compared with the whole


class BodyLinks(Protocol):
    """Which bodies build on which."""

    def links(self, seq: int) -> list[int]: ...

    def dependents(self, seqs: Iterable[int]) -> list[tuple[int, int, int]]:
        """Return (seq, base, encoding) of all rows that build directly on one of these."""
        ...


class Rewritten(NamedTuple):
    """The rows that replace others, and those that cannot be read and stay as they are."""

    rows: list[BodyRow]
    lost: list[int]
    wrong_keys: WrongKeys | None = None  # why one of them cannot be read


class _State(NamedTuple):
    seq: int
    body: bytes
    nonce: str
    depth: int


class _Survivor(NamedTuple):
    """A body to rewrite: its chain, where that meets the dead, and what is left below."""

    seq: int
    depth: int
    dead: int
    below: int | None
    below_depth: int

    @property
    def order(self) -> tuple[int, bool, int]:
        """Those nearest to the dead come first, the older of them before the newer."""
        return self.depth, self.seq > self.dead, abs(self.seq - self.dead)


def rewritten(
    table: BodyLinks, dead: set[int], read: Callable[[int], ReadState], cipher: Cipher
) -> Rewritten:
    """Return new rows for all that cannot be read without the dead. Changes nothing."""
    survivors = sorted(_survivors(table, dead), key=lambda each: each.order)
    result = Rewritten([], [])
    texts = _States(read)
    for each in survivors:
        try:
            body, _, nonce = read(each.seq)
            near = texts.near(each)
        except Corrupt as cause:
            result.lost.append(each.seq)
            if isinstance(cause, WrongKeys):
                result = result._replace(wrong_keys=cause)
            continue
        near = [text for text in near if text.depth < _DEPTH_MAX + len(body) // _DEPTH_BYTES]
        steps = [(text.seq, delta.dump(delta.diff(text.body, body)), text.nonce) for text in near]
        row = shortest(each.seq, (body, nonce), steps, cipher)
        result.rows.append(row)
        depth = next((text.depth for text in near if text.seq == row.base), 0) + 1
        texts.add(each, _State(each.seq, body, nonce, depth))
    return result


class _States:
    """The states that a survivor may be written against: few, as each may be large.

    Those are the first and the last that lost the same base and have the same one left below, and
    that one.
    """

    def __init__(self, read: Callable[[int], ReadState]) -> None:
        self._read = read
        self._groups: dict[tuple[int | None, int], tuple[_State, _State]] = {}
        self._below: _State | None = None

    def near(self, each: _Survivor) -> list[_State]:
        texts = list(self._groups.get((each.below, each.dead), ()))
        if each.below is not None:
            if self._below is None or self._below.seq != each.below:
                body, _, nonce = self._read(each.below)
                self._below = _State(each.below, body, nonce, each.below_depth)
            texts.append(self._below)
        return list({text.seq: text for text in texts}.values())

    def add(self, each: _Survivor, text: _State) -> None:
        group = (each.below, each.dead)
        first, _ = self._groups.pop(group, (text, text))
        self._groups[group] = (first, text)
        while len(self._groups) > _GROUPS_MAX:
            self._groups.pop(next(iter(self._groups)))


def _survivors(table: BodyLinks, dead: set[int]) -> Iterable[_Survivor]:
    found = {seq for seq, _, _ in table.dependents(dead)} - dead
    # A sealed body also needs what its base builds on.
    fresh = found
    while fresh:
        fresh = {
            seq
            for seq, _, encoding in table.dependents(fresh)
            if type(encoding) is int and codec.form_of(encoding) == codec.SEALED
        }
        fresh = fresh - found - dead
        found = found | fresh
    for seq in found:
        chain = table.links(seq)
        below = next((at for at, each in enumerate(chain[1:], 1) if each not in dead), None)
        meets = next((each for each in chain if each in dead), seq)
        yield _Survivor(
            seq,
            len(chain),
            meets,
            None if below is None else chain[below],
            0 if below is None else len(chain) - below,
        )


def shortest(
    seq: int,
    state: tuple[bytes, str],
    steps: Iterable[tuple[int | None, bytes, str]],
    cipher: Cipher,
) -> BodyRow:
    """Return the row of a body: the shortest of some deltas, or the whole if that is shorter.

    A state comes with its nonce, a delta with its base, and the nonce of that.
    """
    body, nonce = state
    squeezed: list[tuple[int | None, tuple[int, bytes], Nonces]] = [
        (base, codec.squeeze(payload, codec.DELTA), (nonce, base_nonce))
        for base, payload, base_nonce in steps
    ]
    best = min(squeezed, key=lambda each: len(each[1][1]), default=None)
    if best is None or len(best[1][1]) * _WHOLE_SHARE > len(body):
        whole = codec.squeeze(body)
        if best is None or len(whole[1]) <= len(best[1][1]):
            best = (None, whole, (nonce,))
    base, form, nonces = best
    return body_row(seq, base, form, cipher, nonces)


def chained(states: Mapping[int, tuple[bytes, str]], cipher: Cipher) -> Iterator[BodyRow]:
    """Yield rows for many states: the newest is whole, each other one builds on a newer one.

    That is the next one; for every 32nd it is the 32nd next, so that no chain is long.
    """
    first: int | None = None
    last: int | None = None
    for at, seq in enumerate(sorted(states, reverse=True)):
        base = last if at % _CHAINED else first
        steps: list[tuple[int | None, bytes, str]] = []
        if base is not None:
            body, base_nonce = states[base]
            steps = [(base, delta.dump(delta.diff(body, states[seq][0])), base_nonce)]
        yield shortest(seq, states[seq], steps, cipher)
        first, last = first if at % _CHAINED else seq, seq
