"""What changed between two states as HTML: in groups, messages as bubbles, texts word by word."""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import chain, compress
from typing import Final

from limpet.core.diff import diff
from limpet.model import JSON, Change
from limpet.views import chat
from limpet.views.diff import MARKS, Group, Messages, brief, dotted, groups, only_value, text_lines
from limpet.views.format import clipped, count_text, readable
from limpet.views.page.chat import Budget, ChatWriter, escaped, folded_code, started_code

CHANGES_MAX: Final = 100
"""How many changes of one top-level key are shown."""

_EMPTY = '""'
_GROUPS_MAX = 50
_SHOWN_MAX = 400  # changes of all groups
_BRIEF_CHARS_MAX = 160
_PATH_CHARS_MAX = 300
_LINES_MAX = 40
_LINE_CHARS_MAX = 400
_COMPARED_CHARS_MAX = 400_000  # of all texts: to compare two takes up to a second
_MESSAGES = {"added": ("new message", "added"), "removed": ("removed message", "removed")}


def changes_html(before: JSON, after: JSON) -> Iterator[str]:
    """Yield what changed from one state to another; of many changes the first ones."""
    found = diff(before, after)
    if not found:
        yield '<p class="none">There is no difference.</p>\n'
        return
    writer = _Changes(before, after)
    by_key = groups(found, is_object=isinstance(before, dict) and isinstance(after, dict))
    yield f'<p class="sum">{_counts(Group(None, list(found.changes)))}</p>\n'
    for group in by_key[:_GROUPS_MAX]:
        yield from writer.group(group)
    if by_key[_GROUPS_MAX:]:
        more = count_text(len(by_key) - _GROUPS_MAX, "more top-level key")
        yield f'<p class="quiet">… {more} changed.</p>\n'


class _Changes:
    def __init__(self, before: JSON, after: JSON) -> None:
        self._messages = {"removed": Messages(before), "added": Messages(after)}
        self._budget = Budget(text_chars_max=20_000, chars_max=400_000)
        self._chat = ChatWriter(budget=self._budget)
        self._compared = 0
        self._left = _SHOWN_MAX

    def group(self, group: Group) -> Iterator[str]:
        if group.is_one_value:
            yield '<section class="group own">\n'
        else:
            name = "The state" if group.key is None else f"<code>{_key(group)}</code>"
            yield f'<section class="group"><h3>{name} <small>{_counts(group)}</small></h3>\n'
        shown = group.changes[: min(CHANGES_MAX, self._left)]
        self._left -= len(shown)
        is_said = [self._is_message(each) for each in shown]
        for kind in _MESSAGES:
            yield from self._bubbles(kind, [c for c in compress(shown, is_said) if c.kind == kind])
        rest = [each for each, said in zip(shown, is_said, strict=True) if not said]
        if rest:
            yield '<ul class="changes">\n'
            for change in rest:
                path = escape(clipped(group.below(change), _PATH_CHARS_MAX)) or _key(group)
                yield f'<li class="{change.kind}">{_sign(change.kind)}<div>'
                yield f"<code>{path}</code> "
                yield from self._body(change)
                yield "</div></li>\n"
            yield "</ul>\n"
        if left := len(group.changes) - len(shown):
            yield f'<p class="quiet">… {count_text(left, "more change")} not shown.</p>\n'
        yield "</section>\n"

    def _is_message(self, change: Change) -> bool:
        messages = self._messages.get(change.kind)
        return messages is not None and messages.turn(change.path, only_value(change)) is not None

    def _bubbles(self, kind: str, said: Sequence[Change]) -> Iterator[str]:
        """Yield messages as a chat; a result is inside its call if that is among them."""
        if not said:
            return
        noun, word = _MESSAGES[kind]
        messages = self._messages[kind]
        whole = {turn.index: turn for turn in messages.turns}
        indexes = {messages.index(each.path) for each in said}
        calls = chain.from_iterable(whole[at].parts for at in indexes if at in whole)
        answered = {part.id for part in calls if isinstance(part, chat.Call) and part.result}
        yield f'<p class="label">{count_text(len(said), noun)}</p><div class="chat {word}">\n'
        for change in said:
            alone = messages.turn(change.path, only_value(change))
            at = messages.index(change.path)
            turn = alone if at is None else whole.get(at, alone)
            if turn is None or (turn is alone and _are_answers(turn, answered)):
                continue
            yield f'<div class="edit">{_sign(kind)}'
            yield from self._chat.turn(turn)
            yield "</div>"
        yield "</div>\n"

    def _body(self, change: Change) -> Iterator[str]:
        if change.kind == "moved":
            same = change.before == change.after
            where = (
                "is in another order"
                if same
                else f"came from {clipped(dotted(change.before), _PATH_CHARS_MAX)}"
            )
            yield f'<span class="quiet">{escape(where)}</span>'
        elif change.kind == "changed":
            yield from self._changed(change.before, change.after)
        else:
            tag = "ins" if change.kind == "added" else "del"
            yield self._value(only_value(change), tag)

    def _changed(self, before: JSON, after: JSON) -> Iterator[str]:
        if _is_short(before) and _is_short(after):
            old, new = (escape(brief(each)) or _EMPTY for each in (before, after))
            yield f"<del>{old}</del> <b>→</b> <ins>{new}</ins>"
            return
        if isinstance(before, str) and isinstance(after, str):
            self._compared += len(before) + len(after)
            if self._compared <= _COMPARED_CHARS_MAX:
                yield from self._lines(before, after)
                return
        yield '<p class="label">before</p>'
        yield self._value(before, "del")
        yield '<p class="label">after</p>'
        yield self._value(after, "ins")

    def _lines(self, before: str, after: str) -> Iterator[str]:
        lines, left = text_lines(before, after, lines_max=_LINES_MAX, chars_max=_LINE_CHARS_MAX)
        yield '<pre class="lines">'
        for line in lines:
            tag = {"-": "del", "+": "ins"}.get(line.mark)
            words = "".join(
                f"<{tag}>{escape(text)}</{tag}>" if changed and tag else escape(text)
                for text, changed in line.spans
            )
            kind = {"-": "removed", "+": "added", "…": "gap"}.get(line.mark, "same")
            yield f'<span class="{kind}"><span class="sign">{line.mark}</span>{words}</span>\n'
        yield "</pre>"
        if left:
            yield f'<p class="quiet">… {count_text(left, "more line")}</p>'

    def _value(self, value: JSON, tag: str) -> str:
        if _is_short(value):
            return f"<{tag}>{escape(brief(value)) or _EMPTY}</{tag}>"
        if isinstance(value, str):
            text = self._budget.cut(value)
            left = len(value) - len(text)
            more = f'<p class="quiet">… {count_text(left, "more character")}</p>' if left else ""
            return folded_code(readable(text)) + more
        return started_code(*self._budget.cut_json(value))


def _key(group: Group) -> str:
    return "." if group.key is None else escaped(clipped(group.key, _PATH_CHARS_MAX)) or _EMPTY


def _is_short(value: JSON) -> bool:
    if isinstance(value, str):
        return len(value) <= _BRIEF_CHARS_MAX and "\n" not in value
    return len(brief(value, _BRIEF_CHARS_MAX + 1)) <= _BRIEF_CHARS_MAX


def _are_answers(turn: chat.ChatTurn, answered: set[str | None]) -> bool:
    """Whether all that a message has is shown inside the calls."""
    return all(isinstance(part, chat.Answer) and part.id in answered for part in turn.parts)


def _sign(kind: str) -> str:
    return f'<span class="sign" title="{kind}">{escape(MARKS[kind])}</span>'


def _counts(group: Group) -> str:
    return " ".join(
        f'<span class="{kind}">{escape(MARKS[kind])} {count:,} {kind}</span>'
        for kind, count in group.counts.items()
    )
