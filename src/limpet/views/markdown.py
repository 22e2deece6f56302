"""A session as a Markdown document.

Content of the store is escaped: it cannot add HTML, links, images or headings, and code is in
fences that are longer than any run of backticks in it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from limpet.model import JSON, ScopeInfo, SnapshotInfo
from limpet.views import chat
from limpet.views.document import (
    ScopePage,
    content_of,
    labels_text,
    note_name,
    scope_facts,
    scope_name,
    session_facts,
)
from limpet.views.format import address_text, moment_text, readable, status_or_dash, visible

_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(?=\S)(.*?)[ \t#]*")  # in a message; its text
# Inline code: its backticks and its text. Bounded, so that no line is slow.
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.{1,300}?)(?<!`)\1(?!`)")
_FENCE = re.compile(r"[ \t]*(`{3,}(?=[^`]*$)|~{3,})[ \t]*(.*)")
_ACTIVE = re.compile(r"[\\`\[\]]|~(?=~~)")
_CONTAINERS = r"(?:[ \t>]|[-*+](?=[ \t])|[0-9]{1,9}[.)](?=[ \t]))*"
_BEGINS_BLOCK = re.compile(rf"\A({_CONTAINERS})(#|=+[ \t]*$|-+[ \t]*$)")
_IN_CELL = re.compile(r"[<&\[\\]")
_BACKTICKS = re.compile(r"`+")
_LANGUAGE = re.compile(r"[A-Za-z0-9_+#.-]{1,40}")


def session_markdown(
    session_id: str,
    scopes: Iterable[ScopePage],
    *,
    contents: Sequence[ScopeInfo] = (),
    title: str | None = None,
) -> Iterator[str]:
    """Yield the parts of a document with all scopes of a session.

    `contents` are the same scopes, for a table of contents. `scopes` is read lazily.
    """
    yield f"# {code(session_id)}\n\n" if title is None else f"# {prose(title)}\n\n"
    if title is not None:
        yield f"Session {code(session_id)}\n\n"
    if contents:
        yield _facts(session_facts(contents))
    if len(contents) > 1:
        yield from (f"- {code(scope_name(info.key))}{_state(info)}\n" for info in contents)
        yield "\n"
    for page in scopes:
        yield from _scope(page)


def _state(info: ScopeInfo) -> str:
    if info.head is None:
        return ": no head"
    return f": {prose(status_or_dash(info.head.status))}, {moment_text(info.head.created_at)} UTC"


def _scope(page: ScopePage) -> Iterator[str]:
    yield f"## {code(scope_name(page.key))}\n\n"
    yield _facts(scope_facts(page))
    if page.head is not None:
        content = content_of(page.head.state)
        if content.chat is not None:
            for turn in content.chat.turns:
                yield from _turn(turn)
        if content.others:
            yield "### State\n\n"
            for name, value in content.others:
                yield f"{code(name)}\n\n{_json(value)}"
    if page.notes:
        yield "### Notes\n\n"
        for note in page.notes:
            yield f"{code(note_name(note))}\n\n{_json(note.value)}"
    if page.history:
        yield "### History\n\n"
        head_id = None if page.head is None else page.head.id
        yield from (_entry(info, is_head=info.id == head_id) for info in page.history)
        yield "\n"


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    cells = [(name, code(value).replace("|", "\\|")) for name, value in facts]
    rows = "".join(f"| {name} | {value} |\n" for name, value in cells)
    return f"| | |\n|---|---|\n{rows}\n"


def _entry(info: SnapshotInfo, *, is_head: bool) -> str:
    words = [f"{moment_text(info.created_at)} UTC", code(info.id)]
    words += [prose(visible(info.status))] if info.status else []
    if is_head:
        words.append("**head**")
    if info.parent_id is not None:
        words.append(f"follows {code(info.parent_id)}")
    if info.forked_from is not None:
        words.append(f"forked from {code(address_text(*info.forked_from))}")
    labels = labels_text(info)
    if labels:
        words.append(code(labels))
    return f"- {' · '.join(words)}\n"


def _turn(turn: chat.ChatTurn) -> Iterator[str]:
    name = f" {code(turn.name)}" if turn.name else ""
    yield f"### {prose(visible(turn.role))}{name}\n\n"
    for part in turn.parts:
        yield from _part(part)


def _part(part: chat.Part) -> Iterator[str]:
    if isinstance(part, chat.Call):
        yield f"**calls** {code(part.name)}\n\n"
        yield _json(part.arguments)
        if part.result is not None:
            yield from _result(part.result, part.name)
    elif isinstance(part, chat.Answer):
        yield from _result(part.result, part.name or part.id or "a missing call")
    elif isinstance(part, chat.Text) and part.thinking:
        yield from _folded("thinking", _text(part.text))
    elif isinstance(part, chat.Text):
        yield from _text(part.text)
    else:
        yield _inner(part)


def _result(result: chat.Result, name: str) -> Iterator[str]:
    what = "error" if result.is_error else "result"
    yield from _folded(f"{what} of {visible(name)}", map(_inner, result.parts))


def _inner(part: chat.Inner) -> str:
    if isinstance(part, chat.Text):
        return fenced(readable(part.text))
    if isinstance(part, chat.Media):
        return f"{code(chat.media_text(part))}\n\n"
    return _json(part.value)


def _folded(title: str, inside: Iterable[str]) -> Iterator[str]:
    yield f"<details><summary>{escape(title)}</summary>\n\n"
    yield from inside
    yield "</details>\n\n"


def _text(text: str) -> Iterator[str]:
    """Split a message into prose and fenced code, and write both."""
    lines: list[str] = []
    fence, language, indent = "", "", 0
    for line in readable(text).split("\n"):
        found = _FENCE.fullmatch(line)
        if not fence and found is not None:
            yield _prose_block(lines)
            fence, language, lines = found[1], found[2].strip(), []
            indent = len(line) - len(line.lstrip())
        elif fence and found is not None and found[1].startswith(fence) and not found[2]:
            yield _code_block(lines, language)
            fence, lines = "", []
        elif fence:
            margin = line[:indent]
            lines.append(line[indent:] if not margin.strip() else line)
        else:
            lines.append(line)
    yield _code_block(lines, language) if fence else _prose_block(lines)


def _code_block(lines: list[str], language: str) -> str:
    found = _LANGUAGE.match(language)
    return fenced("\n".join(lines), found[0] if found else "")


def _prose_block(lines: list[str]) -> str:
    text = "\n".join(lines).strip("\n")
    return "\n".join(map(_line, text.split("\n"))) + "\n\n" if text.strip() else ""


def _line(line: str) -> str:
    found = _HEADING.fullmatch(line)
    if found is None:
        return prose(line)
    return prose(found[1]) if "*" in found[1] else f"**{prose(found[1])}**"


def prose(line: str) -> str:
    """Return a line with its emphasis, lists and code; all other Markdown and HTML is escaped."""
    shown: list[str] = []
    at = 0
    for span in _CODE_SPAN.finditer(line):
        if "|" in span[2] and _IN_CELL.search(span[2]):
            continue  # in a table the bar would end it
        shown += _escaped(line[at : span.start()]), span[0]
        at = span.end()
    shown.append(_escaped(line[at:]))
    return _BEGINS_BLOCK.sub(r"\1\\\2", "".join(shown), count=1)


def _escaped(text: str) -> str:
    return escape(_ACTIVE.sub(lambda found: "\\" + found[0], text), quote=False)


def code(text: str) -> str:
    shown = visible(text) or " "
    marks = "`" * (_longest(shown) + 1)
    gap = " " if shown[0] in "` " or shown[-1] in "` " else ""
    return f"{marks}{gap}{shown}{gap}{marks}"


def _json(value: JSON) -> str:
    return fenced(chat.value_text(value, indent=2), "json")


def fenced(text: str, language: str = "") -> str:
    marks = "`" * max(3, _longest(text) + 1)
    return f"{marks}{language}\n{text}\n{marks}\n\n"


def _longest(text: str) -> int:
    return max((len(run) for run in _BACKTICKS.findall(text)), default=0)
