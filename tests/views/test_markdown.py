"""A session as Markdown: what is in it, and that nothing in it breaks out."""

import random
from collections.abc import Iterator

from markdown_it import MarkdownIt

import limpet
from limpet.views.markdown import code, fenced, prose, session_markdown
from tests.views.document_kit import HOSTILE, UNSEEN, Seen, hostile_session, open_session

RENDER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
TAGS = {
    *("h1", "h2", "h3", "p", "ul", "ol", "li", "em", "strong", "code", "pre", "s", "hr", "br"),
    *("table", "thead", "tbody", "tr", "th", "td", "blockquote", "details", "summary"),
}
PIECES = [
    *("`", "``", "```", "~~~", "<b>", "</details>", "\\", "|", "|---|", "\n", "\n\n", "    ", "> "),
    *(
        "- ",
        "1. ",
        "# ",
        "===",
        "---",
        "[x](y)",
        "![x](y)",
        "[x]: y",
        "&lt;",
        "*",
        "**",
        "_",
        "word ",
    ),
]


class SeenMarkdown(Seen):
    """Remembers the text inside each kind of tag."""

    def __init__(self, html: str) -> None:
        self.texts: dict[str, str] = {}
        super().__init__(html)
        assert {name for name, _ in self.attributes} <= {"class", "start"}

    def handle_data(self, data: str) -> None:
        for tag in {*self.open, "all"}:
            self.texts[tag] = self.texts.get(tag, "") + data


def rendered(text: str) -> SeenMarkdown:
    return SeenMarkdown(RENDER.render(text))


def test_nothing_breaks_out() -> None:
    for text in HOSTILE:
        name, contents, pages = hostile_session(text)
        whole = "".join(session_markdown(name, pages, contents=contents))
        whole.encode()
        assert not UNSEEN & {*whole}, text
        seen = rendered(whole)
        assert {*seen.tags} <= TAGS, text
        assert seen.tags.count("h1") == 1, text
        assert seen.tags.count("h2") == 2, text
        # Of each scope five turns, the state, the history; and the notes of one.
        assert seen.tags.count("h3") == 2 * 7 + 1, text
        assert seen.tags.count("details") == 2 * 3, text


def test_no_line_of_a_message_is_more_than_text() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        text = "".join(chance.choices(PIECES, k=chance.randrange(1, 25)))
        with limpet.open("memory:") as store:
            store.scope("s").save({"messages": [{"role": "user", "content": text}]})
            _, pages = open_session(store, "s")
        seen = rendered("".join(session_markdown("s", pages)))
        assert {*seen.tags} <= TAGS - {"details", "summary"}, seed
        headings = [tag for tag in seen.tags if tag[0] == "h" and tag != "hr"]
        assert headings == ["h1", "h2", "h3", "h3"], seed


def test_code_is_shown_as_it_is() -> None:
    for text in ["a", "`", "``a`", " a ", "a|b", "", "<b>", "\\"]:
        assert rendered(code(text)).texts.get("code", "").strip() == text.strip(), text
        assert rendered(fenced(text)).texts["pre"] == text + "\n", text


def test_prose() -> None:
    for line, shown in [
        ("plain *words* and **more**", "plain *words* and **more**"),
        ("- a `list<int>` of & things", "- a `list<int>` of &amp; things"),
        ("ls `a | b`", "ls `a | b`"),
        ("# no heading", "\\# no heading"),
        ("a < b > c", "a &lt; b &gt; c"),
        ("see [1]", "see \\[1\\]"),
        ("", ""),
    ]:
        assert prose(line) == shown, (line, shown)


def test_a_session_reads_well() -> None:
    with limpet.open("memory:") as store:
        chat = store.scope("alice/chat", "planner")
        call = {"toolUse": {"toolUseId": "c", "name": "search", "input": {"q": "x"}}}
        result = {"toolUseId": "c", "status": "success", "content": [{"text": "found\n```\n"}]}
        image = {"image": {"format": "png", "source": {"bytes": "aGVsbG8="}}}
        messages = [
            {"role": "user", "content": [{"text": "## Hello\n\nhow are **you**?"}, image]},
            {"role": "assistant", "content": [{"text": "```py\nx = '<b>'\n```"}, call]},
            {"role": "user", "content": [{"toolResult": result}]},
        ]
        first = chat.save({"messages": messages, "mood": {"calm": True}}, labels={"run_id": "7"})
        chat.save({"messages": messages, "mood": 1}, id="second", status="failed")
        chat.set_note("seen", [1], on=first.id)
        contents, pages = open_session(store, "alice/chat")
    text = "".join(session_markdown("alice/chat", pages, contents=contents))
    lines = text.split("\n")
    assert lines[0] == "# `alice/chat`"
    assert "| status | `failed` |" in lines
    assert "| history | `2 snapshots` |" in lines
    assert "**Hello**" in lines
    assert "how are **you**?" in lines
    assert "`image (image/png, 5 B)`" in lines
    assert "```py\nx = '<b>'\n```\n" in text
    assert '**calls** `search`\n\n```json\n{\n  "q": "x"\n}\n```\n' in text
    assert "<details><summary>result of search</summary>\n\n````\nfound\n```\n\n````\n" in text
    assert "### State\n\n`mood`\n\n```json\n1\n```\n" in text
    assert f"`seen on {first.id}`\n\n```json\n[\n  1\n]\n```\n" in text
    assert f"· `{first.id}` · `run_id=7`" in text
    assert f"· `second` · failed · **head** · follows `{first.id}`" in text


def test_scopes_are_asked_for_one_after_the_other() -> None:
    with limpet.open("memory:") as store:
        store.scope("s", "a").save({"messages": [{"role": "user", "content": "x"}]})
        store.scope("s", "b").save([1])
        store.scope("s", "c").set_note("only", 1)
        contents, pages = open_session(store, "s")
    asked = []

    def lazily() -> Iterator[object]:
        for page in pages:
            asked.append(page.key.scope_id)
            yield page

    written = ""
    for piece in session_markdown("s", lazily(), contents=contents):  # type: ignore[arg-type]
        written += piece
        if piece.startswith("## "):
            assert asked[-1] in piece
            assert len(asked) == written.count("\n## ")
    assert "- `c`: no head\n" in written
    assert "## `b`" in written
    assert "`.`\n\n```json\n[\n  1\n]\n```" in written
