"""A diff as rows for a person to read: what changed where, and inside a text which words."""

import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import groupby, islice
from typing import NamedTuple

from limpet.model import JSON, Change, Diff
from limpet.views.chat.text import Answer, Call, Part, read_chat, turn_text
from limpet.views.sizes import clipped, visible

MARKS = {"added": "+", "removed": "-", "changed": "~", "moved": ">"}
KINDS = ("added", "changed", "removed", "moved")  # the order in which a summary counts them
_BRIEF_CHARS_MAX = 10_000  # of one line: no screen shows more, and a state may be 64 MiB


class Row(NamedTuple):
    """One change: its mark, where it is, and what was and is there, as text on one line each.

    `before` is None for what was added, and `after` for what was removed. A moved value has its
    old place as `before` and its new one as `after`.
    """

    mark: str
    path: str
    before: str | None
    after: str | None


def diff_rows(diff: Diff) -> Iterator[Row]:
    """Yield a row for each change, in the order of the diff."""
    for change in diff.changes:
        shown = dotted if change.kind == "moved" else brief
        yield Row(
            MARKS[change.kind],
            dotted(change.path),
            None if change.kind == "added" else shown(change.before),
            None if change.kind == "removed" else shown(change.after),
        )


class Group(NamedTuple):
    """The changes at and below one top-level key; None is a state that is not an object."""

    key: str | None
    changes: list[Change]

    @property
    def counts(self) -> Mapping[str, int]:
        """How many changes there are of each kind, in the order of a summary."""
        found: Counter[str] = Counter(change.kind for change in self.changes)
        return {kind: found[kind] for kind in KINDS if found[kind]}

    def below(self, change: Change) -> str:
        """Return where a change is, below the key of the group; nothing if it is the key's own."""
        pointer = change.path
        if self.key is None:
            return dotted(pointer)
        _, _, rest = pointer[1:].partition("/")
        return dotted(f"/{rest}") if "/" in pointer[1:] else ""


def groups(diff: Diff, *, is_object: bool) -> list[Group]:
    """Return the changes by top-level key, in the order in which the diff comes to each.

    `is_object` tells that both states are objects; of others the changes are one group.
    """
    found: dict[str | None, Group] = {}
    for change in diff.changes:
        key = parts(change.path)[0] if is_object and change.path else None
        found.setdefault(key, Group(key, [])).changes.append(change)
    return list(found.values())


def parts(pointer: str) -> list[str]:
    """Return the keys and places that a JSON Pointer leads through."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def dotted(pointer: str) -> str:
    """Return a JSON Pointer as people write it: `messages.3.content`; `.` is the whole state."""
    return visible(".".join(parts(pointer))) or "."


def brief(value: JSON) -> str:
    """Return a value as one line: a text as it is, a message as who said what, the rest as JSON.

    What no screen could show is cut off.
    """
    if isinstance(value, str):
        return visible(value[:_BRIEF_CHARS_MAX])
    if isinstance(value, dict) and isinstance(value.get("content"), str):
        speaker = value.get("name") or value.get("role")
        if isinstance(speaker, str):
            return visible(f"{speaker}: {value['content'][:_BRIEF_CHARS_MAX]}")
    if not isinstance(value, dict | list):
        return visible(json.dumps(value, ensure_ascii=False))
    chunks = json.JSONEncoder(ensure_ascii=False).iterencode(value)
    text, length = [], 0
    for chunk in chunks:
        text.append(chunk)
        length += len(chunk)
        if length > _BRIEF_CHARS_MAX:
            break
    return visible("".join(text)[:_BRIEF_CHARS_MAX])


class Said(NamedTuple):
    """A message on one line: the role and the name of who spoke, and what was said."""

    role: str
    speaker: str
    text: str


class Messages:
    """Where the messages of a state stand, and how each of them reads on one line."""

    def __init__(self, state: JSON) -> None:
        """Find the messages, whatever framework wrote them."""
        chat = read_chat(state)
        self._place = "" if chat is None else f"{chat.path}/"
        turns = () if chat is None else chat.turns
        calls = [part for turn in turns for part in turn.parts if isinstance(part, Call)]
        self._called = {call.id: call.name for call in calls if call.id is not None}

    def said(self, pointer: str, value: JSON) -> Said | None:
        """Return a value as who said what; None if no message stands at its JSON Pointer."""
        if not self._place or not pointer.startswith(self._place):
            return None
        if not pointer.removeprefix(self._place).isdecimal():
            return None
        chat = read_chat({"messages": [value]})
        if chat is None or not chat.turns:
            return None
        turn = chat.turns[-1]
        turn = replace(turn, parts=tuple(map(self._named, turn.parts)))
        return Said(turn.role, visible(turn.name or turn.role), turn_text(turn))

    def _named(self, part: Part) -> Part:
        """Return the result of a tool under the tool's name, which stands in an earlier message."""
        if isinstance(part, Answer) and part.name is None and part.id in self._called:
            return replace(part, name=self._called[part.id])
        return part


def value_lines(
    value: JSON, *, lines_max: int | None = None, chars_max: int | None = None
) -> tuple[list[str], int]:
    """Return the lines of a value, a text as it is and the rest as indented JSON.

    At most so many of them, of so many characters each; then also how many lines are left out.
    """
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    lines = text.split("\n")
    shown = [_cut(line, chars_max) for line in lines[:lines_max]]
    return [visible(line) for line in shown], len(lines) - len(shown)


def _cut(text: str, chars_max: int | None) -> str:
    """Return a text that was cut before anything else is done to it: it may have 64 MiB."""
    return text if chars_max is None else clipped(text, chars_max)


# Inside a text.

_LINES_MAX = 1_000  # compared with one another, on either side: a second at the very worst
_WORDS_MAX = 400  # likewise, of one line
_MIDDLE_CHARS_MAX = 10_000  # of a line between its first and last difference, to have words at all
_EDITED_LINES_MAX = 50  # whose words are compared, one after the other
_LIKENESS_MIN = 0.4  # below, two lines have so little in common that no words are marked
_CONTEXT_LINES = 1
_NEAR_CHARS = 24  # of what stayed the same that are shown beside a change
_WORD_CHARS_MAX = 64  # what is longer is no word, and may be cut
_WORD = re.compile(r"\w+|\s+|[^\w\s]")
_FIRST_WORD = re.compile(r"\w+")
_LAST_WORD = re.compile(r"\w+\Z")


class Span(NamedTuple):
    """A piece of a line, and whether it is what changed."""

    text: str
    changed: bool


class TextLine(NamedTuple):
    """A line of a changed text: `-` is gone, `+` is new, a space stayed, `…` are lines left out."""

    mark: str
    spans: tuple[Span, ...]

    @property
    def text(self) -> str:
        """The line without its mark."""
        return "".join(span.text for span in self.spans)


def text_lines(before: str, after: str, *, chars_max: int | None = None) -> Iterator[TextLine]:
    """Yield the lines that differ between two texts, with a line of context around them.

    Where a line was edited its words are compared. Lines of more than `chars_max` characters are
    shown around what changed in them. Beyond the numbers above the comparison gets coarser:
    everything between the first and the last difference is gone, and new.
    """
    if before == after:
        return
    old, new = (text.split("\n") if text else [] for text in (before, after))
    for line in _compared(old, new):
        yield TextLine(line.mark, tuple(_shown(line, chars_max)))


def _compared(old: list[str], new: list[str]) -> Iterator[TextLine]:
    last = 0  # the old lines up to here are told
    for was, now in _blocks(old, new, _LINES_MAX):
        yield from _context(old, last, was.start)
        yield from _edited(old[was.start : was.stop], new[now.start : now.stop])
        last = was.stop
    yield from _context(old, last, len(old), is_end=True)


def _shown(line: TextLine, chars_max: int | None) -> Iterator[Span]:
    """Yield the pieces of a line, fit to be shown; of a long one what is near to a change."""
    long = chars_max is not None and sum(len(span.text) for span in line.spans) > chars_max
    last = len(line.spans) - 1
    for at, (text, changed) in enumerate(line.spans):
        if long and last > 0 and not changed:
            head, tail = (_NEAR_CHARS if beside else 0 for beside in (at > 0, at < last))
            if len(text) > head + tail + 1:
                text = f"{text[:head]}…{text[len(text) - tail :]}"
        elif long:
            text = _cut(text, chars_max)
        yield Span(visible(text), changed)


def _blocks(old: Sequence[str], new: Sequence[str], most: int) -> Iterator[tuple[range, range]]:
    """Yield the places of what differs between two sequences, in their order."""
    begin, least = 0, min(len(old), len(new))
    while begin < least and old[begin] == new[begin]:
        begin += 1
    end = 0
    while end < least - begin and old[-1 - end] == new[-1 - end]:
        end += 1
    mine, other = old[begin : len(old) - end], new[begin : len(new) - end]
    if not mine and not other:
        return
    if len(mine) > most or len(other) > most:
        yield range(begin, begin + len(mine)), range(begin, begin + len(other))
        return
    matcher = SequenceMatcher(None, mine, other, autojunk=False)
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag != "equal":
            yield range(begin + i, begin + j), range(begin + k, begin + m)


def _context(
    lines: list[str], start: int, stop: int, *, is_end: bool = False
) -> Iterator[TextLine]:
    """Yield the lines next to a change, and how many are between two of them."""
    head = start + _CONTEXT_LINES if start else 0
    tail = stop if is_end else stop - _CONTEXT_LINES
    if tail - head <= 1:  # to say that one is left out takes as much room
        head = tail = stop
    for line in lines[start:head]:
        yield _plain(" ", line, changed=False)
    if head < tail:
        yield _plain("…", f"{tail - head:,} lines", changed=False)
    for line in lines[tail:stop]:
        yield _plain(" ", line, changed=False)


def _edited(gone: list[str], come: list[str]) -> Iterator[TextLine]:
    """Yield the lines that are gone, then those that are new; pairs of them by their words."""
    both = zip(gone, come, strict=False)
    pairs = [_words(a, b) for a, b in islice(both, _EDITED_LINES_MAX)]
    for at, line in enumerate(gone):
        yield TextLine("-", pairs[at][0]) if at < len(pairs) else _plain("-", line)
    for at, line in enumerate(come):
        yield TextLine("+", pairs[at][1]) if at < len(pairs) else _plain("+", line)


def _words(before: str, after: str) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Return two lines in pieces: what changed from one to the other, and what did not."""
    begin, end = _ends(before, after)
    middle = [text[begin : len(text) - end] for text in (before, after)]
    if max(map(len, middle)) > _MIDDLE_CHARS_MAX:
        words = [[text] for text in middle]
    else:
        words = [_WORD.findall(text) for text in middle]
    lines: list[list[Span]] = [[], []]
    head, tail = before[:begin], before[len(before) - end :]
    same, last = len(head) + len(tail), (0, 0)
    blocks = [
        *_blocks(words[0], words[1], _WORDS_MAX),
        (range(len(words[0]), 0), range(len(words[1]), 0)),
    ]
    for was, now in blocks:
        same += sum(map(len, words[0][last[0] : was.start]))
        for line, own, start, block in zip(lines, words, last, (was, now), strict=True):
            line.append(Span("".join(own[start : block.start]), False))
            line.append(Span("".join(own[block.start : block.stop]), True))
        last = was.stop, now.stop
    if same < _LIKENESS_MIN * max(1, min(len(before), len(after))):
        return _plain("-", before).spans, _plain("+", after).spans
    one, other = ((Span(head, False), *line, Span(tail, False)) for line in lines)
    return _joined(one), _joined(other)


def _ends(before: str, after: str) -> tuple[int, int]:
    """Return how many characters two lines have in common at both ends, in whole words."""
    old, new = len(before), len(after)
    least = min(old, new)
    begin = bisect_left(range(least), True, key=lambda n: before[: n + 1] != after[: n + 1])
    word = _LAST_WORD.search(before, max(0, begin - _WORD_CHARS_MAX), begin)
    begin = word.start() if word else begin
    end = bisect_left(
        range(least - begin), True, key=lambda n: before[old - n - 1 :] != after[new - n - 1 :]
    )
    word = _FIRST_WORD.match(before, old - end, min(old, old - end + _WORD_CHARS_MAX))
    return begin, old - word.end() if word else end


def _joined(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    """Return spans without empty ones, and neighbours of the same sort as one."""
    kinds = groupby((span for span in spans if span.text), key=lambda span: span.changed)
    return tuple(Span("".join(span.text for span in some), kind) for kind, some in kinds)


def _plain(mark: str, line: str, *, changed: bool = True) -> TextLine:
    return TextLine(mark, (Span(line, changed),))
