"""A diff for people: its changes in groups, and the changed words of a text."""

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
from limpet.views.chat import Answer, Call, ChatTurn, Part, read_chat, turn_text
from limpet.views.format import clipped, json_start, visible

MARKS = {"added": "+", "removed": "-", "changed": "~", "moved": ">"}
KINDS = ("added", "changed", "removed", "moved")  # in the order of a summary
_BRIEF_CHARS_MAX = 10_000  # of one line: a state may have 64 MiB


class Group(NamedTuple):
    """The changes at and below one top-level key; None if a state is not an object."""

    key: str | None
    changes: list[Change]

    @property
    def counts(self) -> Mapping[str, int]:
        found: Counter[str] = Counter(change.kind for change in self.changes)
        return {kind: found[kind] for kind in KINDS if found[kind]}

    @property
    def is_one_value(self) -> bool:
        """Whether it is a change of the key itself, whose name says it all."""
        return self.key is not None and not any(map(self.below, self.changes))

    def below(self, change: Change) -> str:
        """Return the path of a change below the key of the group; empty if it is the key itself."""
        pointer = change.path
        if self.key is None:
            return dotted(pointer)
        _, _, rest = pointer[1:].partition("/")
        return dotted(f"/{rest}") if "/" in pointer[1:] else ""


def groups(diff: Diff, *, is_object: bool) -> list[Group]:
    """Return the changes by top-level key, in order; as one group if not `is_object`."""
    found: dict[str | None, Group] = {}
    for change in diff.changes:
        key = parts(change.path)[0] if is_object and change.path else None
        found.setdefault(key, Group(key, [])).changes.append(change)
    return list(found.values())


def only_value(change: Change) -> JSON:
    """Return what was added or removed."""
    return change.after if change.kind == "added" else change.before


def parts(pointer: str) -> list[str]:
    """Return the parts of a JSON Pointer."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def dotted(pointer: str) -> str:
    """Return a JSON Pointer as `messages.3.content`; `.` is the whole state."""
    return visible(".".join(parts(pointer))) or "."


def brief(value: JSON, chars_max: int = _BRIEF_CHARS_MAX) -> str:
    """Return a value on one line: a text as it is, a message with its speaker, the rest as JSON."""
    if isinstance(value, str):
        return visible(value[:chars_max])
    if isinstance(value, dict) and isinstance(value.get("content"), str):
        speaker = value.get("name") or value.get("role")
        if isinstance(speaker, str):
            return visible(f"{speaker}: {value['content'][:chars_max]}")
    if not isinstance(value, dict | list):
        return visible(json.dumps(value, ensure_ascii=False))
    return json_start(value, chars_max, indent=None)


class Said(NamedTuple):
    """A message on one line."""

    role: str
    speaker: str
    text: str


class Messages:
    """The messages of a state by their JSON Pointers."""

    def __init__(self, state: JSON) -> None:
        chat = read_chat(state)
        self._prefix = "" if chat is None else f"{chat.path}/"
        self.turns = () if chat is None else chat.turns
        calls = [part for turn in self.turns for part in turn.parts if isinstance(part, Call)]
        self._called = {call.id: call.name for call in calls if call.id is not None}

    def said(self, pointer: str, value: JSON) -> Said | None:
        """Return a value as a message; None if its JSON Pointer is not that of a message."""
        turn = self.turn(pointer, value)
        if turn is None:
            return None
        return Said(turn.role, visible(turn.name or turn.role), turn_text(turn))

    def index(self, pointer: str) -> int | None:
        """Return the position of a message; None if the JSON Pointer is not that of a message."""
        if not self._prefix or not pointer.startswith(self._prefix):
            return None
        number = pointer.removeprefix(self._prefix)
        return int(number) if number.isdecimal() else None

    def turn(self, pointer: str, value: JSON) -> ChatTurn | None:
        """Return a message as a turn of its own: the result of a tool is not inside its call."""
        index = self.index(pointer)
        chat = None if index is None else read_chat({"messages": [value]})
        if index is None or chat is None or not chat.turns:
            return None
        turn = chat.turns[-1]
        return replace(turn, index=index, parts=tuple(map(self._named, turn.parts)))

    def _named(self, part: Part) -> Part:
        """Give a tool result the name of its tool, which an earlier message has."""
        if isinstance(part, Answer) and part.name is None and part.id in self._called:
            return replace(part, name=self._called[part.id])
        return part


def value_lines(
    value: JSON, *, lines_max: int | None = None, chars_max: int | None = None
) -> tuple[list[str], int]:
    """Return the lines of a text or of indented JSON, and how many more there are."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    lines = text.split("\n")
    shown = [_cut(line, chars_max) for line in lines[:lines_max]]
    return [visible(line) for line in shown], len(lines) - len(shown)


def _cut(text: str, chars_max: int | None) -> str:
    return text if chars_max is None else clipped(text, chars_max)


# Limits of the comparison of two texts, which takes a second at worst.
_LINES_MAX = 1_000  # compared with each other
_WORDS_MAX = 400  # compared with each other, of one line
_MIDDLE_CHARS_MAX = 10_000  # of a line between its first and last difference
_EDITED_LINES_MAX = 50  # whose words are compared
_LIKENESS_MIN = 0.4  # below, no words are marked
_CONTEXT_LINES = 1
_NEAR_CHARS = 24  # unchanged ones that are shown next to a change
_WORD_CHARS_MAX = 64  # longer ones may be cut
_WORD = re.compile(r"\w+|\s+|[^\w\s]")
_FIRST_WORD = re.compile(r"\w+")
_LAST_WORD = re.compile(r"\w+\Z")


class Span(NamedTuple):
    text: str
    changed: bool


class TextLine(NamedTuple):
    """A line of a changed text: `-` removed, `+` added, space unchanged, `…` lines left out."""

    mark: str
    spans: tuple[Span, ...]

    @property
    def text(self) -> str:
        return "".join(span.text for span in self.spans)


def text_lines(
    before: str, after: str, *, lines_max: int | None = None, chars_max: int | None = None
) -> tuple[list[TextLine], int]:
    """Return the lines that differ between two texts, and how many more there are.

    There is a line of context around them. The words of an edited line are compared. Of lines
    longer than `chars_max` only the parts near a change are shown. Above the limits, everything
    between the first and the last difference counts as changed.
    """
    old, new = (text.split("\n") if text else [] for text in (before, after))
    shown: list[TextLine] = []
    left = 0
    for count, lines in _sections(old, new) if before != after else ():
        some = list(islice(lines, None if lines_max is None else lines_max - len(shown)))
        shown += [TextLine(line.mark, tuple(_shown(line, chars_max))) for line in some]
        left += count - len(some)
    return shown, left


def _sections(old: list[str], new: list[str]) -> Iterator[tuple[int, Iterator[TextLine]]]:
    """Yield the lines in sections, each after their number: a million need not all be made."""
    last = 0  # old lines up to here are done
    for was, now in _blocks(old, new, _LINES_MAX):
        context = list(_context(old, last, was.start))
        yield len(context), iter(context)
        removed, added = old[was.start : was.stop], new[now.start : now.stop]
        yield len(removed) + len(added), _edited(removed, added)
        last = was.stop
    context = list(_context(old, last, len(old), is_end=True))
    yield len(context), iter(context)


def _shown(line: TextLine, chars_max: int | None) -> Iterator[Span]:
    long = chars_max is not None and sum(len(span.text) for span in line.spans) > chars_max
    last = len(line.spans) - 1
    for at, (text, changed) in enumerate(line.spans):
        if long and last > 0 and not changed:
            head, tail = (_NEAR_CHARS if inner else 0 for inner in (at > 0, at < last))
            if len(text) > head + tail + 1:
                text = f"{text[:head]}…{text[len(text) - tail :]}"
        elif long:
            text = _cut(text, chars_max)
        yield Span(visible(text), changed)


def _blocks(old: Sequence[str], new: Sequence[str], most: int) -> Iterator[tuple[range, range]]:
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
    head = start + _CONTEXT_LINES if start else 0
    tail = stop if is_end else stop - _CONTEXT_LINES
    if tail - head <= 1:  # the hint would take as much room
        head = tail = stop
    for line in lines[start:head]:
        yield _plain(" ", line, changed=False)
    if head < tail:
        yield _plain("…", f"{tail - head:,} lines", changed=False)
    for line in lines[tail:stop]:
        yield _plain(" ", line, changed=False)


def _edited(removed: list[str], added: list[str]) -> Iterator[TextLine]:
    both = zip(removed, added, strict=False)
    pairs = [_words(a, b) for a, b in islice(both, _EDITED_LINES_MAX)]
    for at, line in enumerate(removed):
        yield TextLine("-", pairs[at][0]) if at < len(pairs) else _plain("-", line)
    for at, line in enumerate(added):
        yield TextLine("+", pairs[at][1]) if at < len(pairs) else _plain("+", line)


def _words(before: str, after: str) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
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
    """Return how many characters two lines share at the start and the end, in whole words."""
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
    kinds = groupby((span for span in spans if span.text), key=lambda span: span.changed)
    return tuple(Span("".join(span.text for span in some), kind) for kind, some in kinds)


def _plain(mark: str, line: str, *, changed: bool = True) -> TextLine:
    return TextLine(mark, (Span(line, changed),))
