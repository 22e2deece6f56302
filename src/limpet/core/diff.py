"""What changed between two states: for a person to read, and as a patch (RFC 6902).

Equality is exact: 1, 1.0 and True differ, and so do 0.0 and -0.0.

Lists. Elements with an `id`, `uuid` or `tool_call_id` are matched by it if it occurs once in each
list; others by content, along a longest common subsequence. Elements matched out of order are
moved. What is left between two kept neighbours is paired by similarity, so that an edited text is
one change inside its message; elements with different ids are never paired.

Order of keys. Limpet preserves it, so two objects that differ only in order are not equal: a member
out of order is "moved" from its pointer to the same pointer. The patch restores the order exactly
if the patching tool adds new members last, as a dict does: what must follow a later member is
removed and added again, large values through a temporary name, so that they are not repeated.

Order of the patch. From the outside in: a container gets its removals from the back, its moves, its
additions from the front, and then its members are compared. So every pointer leads through
containers that already have their new shape.

Limits. Nothing recurses. Work that grows faster than the input has a budget for the whole diff.
Beyond it the match gets coarser, never wrong: the k-th occurrence of an element is matched with the
k-th, left-over elements are paired in order, many moves in a long list become removals and
additions, and a container whose pointers would be huge is replaced as a whole.
"""

import marshal
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple, TypeAlias

from limpet.core.codec import escaped
from limpet.model import JSON, Change, Diff

_IDENTITY_FIELDS = ("id", "uuid", "tool_call_id")
_WORK_MAX = {
    "cells": 2**28,  # of common subsequences, a bit each: 0.1 s, 32 MB; two lists of 16,000
    "pairs": 4_096,  # of elements compared for similarity, at up to 0.1 ms; 64 with 64
    "shifts": 2**29,  # of list positions, by moves, at 1 ns; 20,000 moves in as many elements
    "bytes": 2**28,  # of values that are compared as a whole, at about 5 ns
    "pointer chars": 2**27,  # a huge key is repeated in every pointer below it
}
_LIKENESS_MIN = 0.15  # below, two objects have too little in common to be one that was edited
_PARTS_MAX = 16  # members of an object or elements of a list that are compared
_CHARS_MAX = 1_000  # of the ends of a text that are compared
_REPEATED_CHARS_MAX = 64  # of a value that the patch may repeat
_MEMBERS_AT_ONCE = 256  # of an object that are compared first
_EXACT = 2  # the version of marshal that writes equal values as equal bytes, and no others

Token: TypeAlias = object  # equal tokens of one comparison mean exactly equal values


def diff(before: JSON, after: JSON) -> Diff:
    """Return the changes from `before` to `after`, in the order of the new state.

    Takes any two JSON values, as `load` returns them, and changes neither.
    """
    return _Comparison().run(before, after)


class _Step(NamedTuple):
    """Two objects or lists that differ, and their pointers in the old and the new state."""

    old: JSON
    new: JSON
    was: str
    now: str


class _Done(NamedTuple):
    """A changed value that the patch has set already."""

    change: Change


_Task: TypeAlias = _Step | Change | _Done


class _Comparison:
    """One comparison: its tokens, its remaining budget, and the result so far."""

    def __init__(self) -> None:
        self._tokens = _Tokens()
        self._work = dict(_WORK_MAX)
        self._changes: list[Change] = []
        self._patch: list[tuple[str, str, JSON]] = []

    def run(self, before: JSON, after: JSON) -> Diff:
        # An explicit stack, so that depth costs no frames; it holds what is still to be reported.
        todo: list[_Task] = []
        if self._differ(before, after):
            todo.append(_task(before, after, "", ""))
        while todo:
            step = todo.pop()
            if isinstance(step, Change):
                self._report([step])
            elif isinstance(step, _Done):
                self._changes.append(step.change)
            elif self._afford(
                "pointer chars", len(step.was + step.now) * (len(step.old) + len(step.new))
            ):
                inner = self._object(step) if type(step.new) is dict else self._list(step)
                changes = [each for each in inner if isinstance(each, Change)]
                if len(changes) == len(inner):  # nothing to descend into
                    self._report(changes)
                else:
                    todo.extend(reversed(inner))
            else:
                todo.append(Change(step.now, "changed", step.old, step.new))
        return Diff(tuple(self._changes), tuple(self._patch))

    def _report(self, changes: list[Change]) -> None:
        self._changes += changes
        self._patch += [("replace", c.path, c.after) for c in changes if c.kind == "changed"]

    def _afford(self, what: str, count: int) -> bool:
        affordable = count <= self._work[what]
        self._work[what] -= count if affordable else 0
        return affordable

    def _differ(self, old: JSON, new: JSON) -> bool:
        if old is new:
            return False
        if _same_container(old, new):
            same = self._same_bytes(old, new)
            if same is not None:
                return not same
        return self._tokens.of(old) != self._tokens.of(new)

    def _same_bytes(self, old: JSON, new: JSON) -> bool | None:
        """Compare two containers as a whole; None if that is beyond the budget.

        Much faster than tokens, but an inner value is written again on every level above it.
        """
        if self._work["bytes"] <= 0:
            return None
        try:
            one, other = marshal.dumps(old, _EXACT), marshal.dumps(new, _EXACT)
        except ValueError:  # nested more deeply than marshal goes
            return None
        self._work["bytes"] -= len(one) + len(other)
        return one == other

    def _op(self, op: str, path: str, value: JSON = None) -> None:
        self._patch.append((op, path, value))

    def _object(self, step: _Step) -> list[_Task]:
        old, new, was, now = step
        inner: list[_Task] = []
        stay, names = list(old), list(new)
        if names[: len(stay)] != stay:
            for key in [key for key in old if key not in new]:
                part = _part(key)
                inner.append(Change(was + part, "removed", old[key], None))
                self._op("remove", now + part)
            stay = [key for key in old if key in new]
            if names[: len(stay)] != stay:
                return inner + self._reordered(step)
        inner += self._edited(step, stay)
        for key in names[len(stay) :]:
            path = now + _part(key)
            inner.append(Change(path, "added", None, new[key]))
            self._op("add", path, new[key])
        return inner

    def _edited(self, step: _Step, keys: list[str]) -> Iterator[_Task]:
        """Yield the members that differ, of those that are in both objects in the same order."""
        old, new, was, now = step
        for at in range(0, len(keys), _MEMBERS_AT_ONCE):
            some = keys[at : at + _MEMBERS_AT_ONCE]
            olds, news = [old[key] for key in some], [new[key] for key in some]
            if self._same_bytes(olds, news):
                continue
            for key, one, other in zip(some, olds, news, strict=True):
                if self._differ(one, other):
                    part = _part(key)
                    yield _task(one, other, was + part, now + part)

    def _reordered(self, step: _Step) -> list[_Task]:
        """Compare the members of an object whose order has changed."""
        old, new, was, now = step
        inner: list[_Task] = []
        place = {key: at for at, key in enumerate(old)}
        places = [place[key] for key in new if key in place]
        in_order = {places[at] for at in _rising(places)}
        free = "moving"
        while free in old or free in new:
            free += "_"
        last = -1  # the place of the last member that stays; nothing stays after an addition
        for key, value in new.items():
            at = place.get(key, -1)
            path = now + _part(key)
            if at < 0:
                inner.append(Change(path, "added", None, value))
                self._op("add", path, value)
                last = len(place)
                continue
            member = _Step(old[key], value, was + _part(key), path)
            if at not in in_order:
                inner.append(Change(path, "moved", member.was, path))
            stays = at > last
            last = at if stays else len(place)
            done = not stays and self._put_last(member, f"{now}/{free}")
            if self._differ(member.old, value):
                task = _task(*member)
                inner.append(_Done(task) if done and isinstance(task, Change) else task)
        return inner

    def _put_last(self, member: _Step, aside: str) -> bool:
        """Make a member the last of its object; return whether that also set its new value."""
        old, new, _, path = member
        by_value = self._differ(old, new) or len(str(new)) <= _REPEATED_CHARS_MAX
        if by_value and not _same_container(old, new):
            self._op("remove", path)
            self._op("add", path, new)
            return True
        self._op("move", aside, path)
        self._op("move", path, aside)
        return False

    def _list(self, step: _Step) -> list[_Task]:
        old, new, was, now = step
        kept, moved = self._match(old, new)
        leaving = sorted(set(range(len(old))) - {*kept.values(), *moved.values()})
        for i in reversed(leaving):
            self._op("remove", f"{now}/{i}")
        for source, target in _moves(kept, moved):
            self._op("move", f"{now}/{target}", f"{now}/{source}")
        gone = [Change(f"{was}/{i}", "removed", old[i], None) for i in leaving]
        stops = iter([*sorted(kept.values()), len(old)])
        reported = bisect_left(leaving, next(stops))
        inner: list[_Task] = [*gone[:reported]]
        for j, value in enumerate(new):
            path = f"{now}/{j}"
            i = kept.get(j, moved.get(j, -1))
            if i < 0:
                self._op("add", path, value)
                inner.append(Change(path, "added", None, value))
                continue
            if j in moved:
                inner.append(Change(path, "moved", f"{was}/{i}", path))
            if self._differ(old[i], value):
                inner.append(_task(old[i], value, f"{was}/{i}", path))
            if j in kept:  # removals after it are reported before additions after it
                since, reported = reported, bisect_left(leaving, next(stops))
                inner += gone[since:reported]
        return inner

    def _match(self, old: list[JSON], new: list[JSON]) -> tuple[dict[int, int], dict[int, int]]:
        """Return (new index to old index) of what stays in order, and of what is moved."""
        a, b = self._tokens.of_elements(old, new)
        kept = _common(a, b, self._afford)
        taken = set(kept.values())
        olds = [i for i in range(len(a)) if i not in taken]
        news = [j for j in range(len(b)) if j not in kept]
        again = _occurrences([a[i] for i in olds], [b[j] for j in news])
        moved = {news[n]: olds[m] for n, m in again}
        if not self._afford("shifts", len(moved) * (len(kept) + len(moved))):
            moved = {}
        taken.update(moved.values())
        i = j = 0
        for j_next, i_next in [*kept.items(), (len(b), len(a))]:
            if i < i_next and j < j_next:
                gone = {at: old[at] for at in range(i, i_next) if at not in taken}
                come = {at: new[at] for at in range(j, j_next) if at not in moved}
                kept.update(self._alike(gone, come))
            i, j = i_next + 1, j_next + 1
        return kept, moved

    def _alike(self, gone: dict[int, JSON], come: dict[int, JSON]) -> Iterator[tuple[int, int]]:
        """Yield pairs (new, old) of similar elements in one gap, in order."""
        like = self._tokens.likeness
        if not self._afford("pairs", len(gone) * len(come)):
            pairs = zip(gone, come, strict=False)
            yield from ((j, i) for i, j in pairs if like(gone[i], come[j]) > 0)
            return
        olds, news = list(gone), list(come)
        score = [[like(old, new) for new in come.values()] for old in gone.values()]
        best = [[0.0] * (len(news) + 1) for _ in range(len(olds) + 1)]
        for m in reversed(range(len(olds))):
            for n in reversed(range(len(news))):
                both = best[m + 1][n + 1] + score[m][n]
                best[m][n] = max(both, best[m + 1][n], best[m][n + 1])
        m = n = 0
        while m < len(olds) and n < len(news):
            if score[m][n] > 0 and best[m][n] == best[m + 1][n + 1] + score[m][n]:
                yield news[n], olds[m]
                m, n = m + 1, n + 1
            elif best[m][n] == best[m + 1][n]:
                m += 1
            else:
                n += 1


def _task(old: JSON, new: JSON, was: str, now: str) -> _Step | Change:
    if _same_container(old, new):
        return _Step(old, new, was, now)
    return Change(now, "changed", old, new)


class _Tokens:
    """Makes content exactly comparable at constant cost, after one pass over each value."""

    def __init__(self) -> None:
        self._by_address: dict[int, Token] = {}  # the values outlive the comparison
        self._by_content: dict[Token, Token] = {}

    def _read(self, value: JSON) -> None:
        """Assign tokens to a container, its inner ones first."""
        known = self._by_address
        found = [value]
        for each in found:  # grows while it is read
            parts = each.values() if type(each) is dict else each
            found += [p for p in parts if type(p) in (dict, list) and id(p) not in known]
        for each in reversed(found):
            keys, parts = (tuple(each), each.values()) if type(each) is dict else (None, each)
            content = keys, tuple(map(self.of, parts))
            known[id(each)] = self._by_content.setdefault(content, object())

    def of(self, value: JSON) -> Token:
        kind = type(value)
        if kind is str or kind is int or value is None:
            return value
        if kind is dict or kind is list:
            if id(value) not in self._by_address:
                self._read(value)
            return self._by_address[id(value)]
        return kind, repr(value)  # Python holds True equal to 1 and 1.0, and 0.0 to -0.0

    def of_elements(self, *lists: list[JSON]) -> list[list[Token]]:
        """Return the tokens to match elements by: the identity if unique, else the content."""
        names = [[_identity(value) for value in values] for values in lists]
        counts = [Counter(each) for each in names]
        usable = {name for name in counts[0] if name and all(each[name] == 1 for each in counts)}
        return [
            [n if n in usable else self.of(v) for n, v in zip(own, values, strict=True)]
            for own, values in zip(names, lists, strict=True)
        ]

    def likeness(self, old: JSON, new: JSON, *, inside: bool = True) -> float:
        """Return how similar two elements are; 0 if they must not be paired."""
        if self.of(old) == self.of(new):
            return 1.0
        if type(old) is str and type(new) is str:
            return _text_likeness(old, new)
        if not _same_container(old, new):
            return 0.0 if {type(old), type(new)} & {dict, list} else 0.2
        if not inside or not old or not new:
            return 0.2
        pairs: Iterator[tuple[JSON, JSON]] = zip(old, new, strict=False)
        if type(old) is dict:
            one, other = _identity(old), _identity(new)
            if one and other and one[0] == other[0] and one != other:
                return 0.0
            pairs = ((old[key], new[key]) for key in old if key in new)
        total = sum(self.likeness(*pair, inside=False) for pair in islice(pairs, _PARTS_MAX))
        ratio = total / min(max(len(old), len(new)), _PARTS_MAX)
        return ratio if ratio >= _LIKENESS_MIN else 0.0


def _text_likeness(old: str, new: str) -> float:
    """Return the share of two texts that is a common prefix and suffix; never quite 0."""
    ends_max = min(len(old), len(new), _CHARS_MAX)
    start = bisect_left(range(ends_max), True, key=lambda n: old[: n + 1] != new[: n + 1])
    end = bisect_left(range(ends_max - start), True, key=lambda n: old[~n:] != new[~n:])
    return max(0.05, (start + end) / min(max(len(old), len(new)), _CHARS_MAX))


def _common(a: list[Token], b: list[Token], afford: Callable[[str, int], bool]) -> dict[int, int]:
    """Return a common subsequence as new index to old index; a longest one if affordable."""
    start, end, shorter = 0, 0, min(len(a), len(b))
    while start < shorter and a[start] == b[start]:
        start += 1
    while end < shorter - start and a[~end] == b[~end]:
        end += 1
    ends = (len(a) - end, len(b) - end)
    shared = set(a[start : ends[0]]) & set(b[start : ends[1]])
    rows = [i for i in range(start, ends[0]) if a[i] in shared]
    columns = [j for j in range(start, ends[1]) if b[j] in shared]
    x, y = [a[i] for i in rows], [b[j] for j in columns]
    if len(shared) < max(len(x), len(y)) and afford("cells", len(x) * len(y)):
        middle = _longest(x, y)
    else:  # a longest one as well where no element occurs twice
        pairs = _occurrences(x, y)
        middle = [pairs[at] for at in _rising([m for _, m in pairs])]
    found = {j: j for j in range(start)} | {columns[n]: rows[m] for n, m in middle}
    return found | {ends[1] + at: ends[0] + at for at in range(end)}


def _longest(x: list[Token], y: list[Token]) -> list[tuple[int, int]]:
    """Return a longest common subsequence as positions (in y, in x), by whole rows of bits.

    Bit m of row n is 0 where x[:m + 1] has more in common with y[:n + 1] than x[:m] has.
    """
    size = len(x) // 8 + 1
    places: dict[Token, bytearray] = defaultdict(lambda: bytearray(size))
    for m, token in enumerate(x):
        places[token][m >> 3] |= 1 << (m & 7)
    masks = {token: int.from_bytes(mask, "little") for token, mask in places.items()}
    row = full = (1 << len(x)) - 1
    rows = []
    for token in y:
        hits = row & masks[token]
        row = ((row + hits) | (row - hits)) & full
        rows.append(row.to_bytes(size, "little"))
    found = []
    m, n = len(x) - 1, len(y) - 1
    while m >= 0 and n >= 0:
        at, bit = m >> 3, 1 << (m & 7)
        if rows[n][at] & bit:
            m -= 1
        elif n and not rows[n - 1][at] & bit:
            n -= 1
        else:
            found.append((n, m))
            m, n = m - 1, n - 1
    return found[::-1]


def _occurrences(x: list[Token], y: list[Token]) -> list[tuple[int, int]]:
    """Return the positions (in y, in x) of each k-th occurrence in both, in the order of y."""
    places: dict[Token, list[int]] = defaultdict(list)
    for m in reversed(range(len(x))):
        places[x[m]].append(m)
    return [(n, places[token].pop()) for n, token in enumerate(y) if places.get(token)]


def _rising(numbers: list[int]) -> list[int]:
    """Return the positions of a longest rising subsequence of distinct numbers."""
    tops: list[int] = []  # by length: the position of the lowest number that ends such a rise
    previous: list[int] = []
    for at, number in enumerate(numbers):
        length = len(tops)
        if tops and number < numbers[tops[-1]]:
            length = bisect_left(tops, number, key=numbers.__getitem__)
        previous.append(tops[length - 1] if length else -1)
        tops[length : length + 1] = [at]
    found = []
    at = tops[-1] if tops else -1
    while at >= 0:
        found.append(at)
        at = previous[at]
    return found[::-1]


def _moves(kept: dict[int, int], moved: dict[int, int]) -> Iterator[tuple[int, int]]:
    """Yield moves (from, to), each in the list that the moves before it left.

    Every element moves, from the front, to right after its predecessor in the new order. Old and
    new positions share one row of slots; an index is the number of taken slots before it.
    """
    olds, news = sorted(kept.values()), sorted(kept)
    slots = [(bisect_left(olds, i), 1, i) for i in moved.values()]
    slots = sorted(slots + [(at, -1, 0) for at in range(1, len(kept) + 1)])
    for j, i in sorted(moved.items()):
        source = bisect_left(slots, (bisect_left(olds, i), 1, i))
        del slots[source]
        slot = (bisect_left(news, j), 0, j)
        target = bisect_left(slots, slot)
        slots.insert(target, slot)
        if source != target:
            yield source, target


def _identity(value: JSON) -> tuple[str, str | int] | None:
    if type(value) is dict:
        for name in _IDENTITY_FIELDS:
            if type(value.get(name)) in (str, int):
                return name, value[name]
    return None


def _same_container(old: JSON, new: JSON) -> bool:
    return type(old) is type(new) and type(new) in (dict, list)


def _part(key: str) -> str:
    return f"/{escaped(key)}"
