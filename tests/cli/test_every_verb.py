"""What holds for every verb: its help, its examples, `--json`, and what it does not understand."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile

import click
import pytest

from docs._make.cli import help_of, verbs
from limpet.cli._app import GROUPS, VERBS, app, run
from tests.cases import for_each
from tests.cli.conftest import Command

COMMANDS = dict(verbs())
SUMMARY_CHARS_MAX = 60  # with the longest verb it fits into 80 columns
COLUMNS = 100
EXAMPLES = range(1, 5)
IN_QUOTES = re.compile(r'"\$\((.*)\)"')
MODULES = """
import sys
from limpet.cli import main
sys.argv = ["limpet", "--help"]
main()
print(*sorted(sys.modules), file=sys.stderr)
"""


def block(text: str, title: str) -> list[str]:
    """Return the lines of a help that stand below a title, up to the next empty line."""
    lines = iter(text.splitlines())
    for line in lines:
        if line.strip().startswith(title):
            return [line.strip(), *(each.strip() for each in takewhile(str.strip, lines))]
    return []


def calls(text: str) -> Iterator[list[str]]:
    """Yield the words of each example of a help, as a shell gives them to the command."""
    for line in block(text, "Examples:")[1:]:
        inner = IN_QUOTES.search(line)
        lexer = shlex.shlex(inner[1] if inner else line, posix=True, punctuation_chars="|>")
        lexer.whitespace_split = True
        yield list(takewhile(lambda word: word not in {"|", ">"}, lexer))


def parse(words: list[str]) -> str:
    """Let click read a call without running it; return the verb that it leads to."""
    name, *rest = words
    # Click remembers a command's help option from the first context that it sees.
    context = click.Context(app, info_name=name, **app.context_settings)
    command: click.Command = app
    path: list[str] = []
    while isinstance(command, click.Group) and rest:
        below = command.get_command(context, rest[0])
        if below is None:
            break
        path.append(rest.pop(0))
        command = below
        if not isinstance(command, click.Group):
            break
        context = click.Context(command, parent=context, info_name=path[-1])
    with command.make_context(path[-1], rest, parent=context.parent or context):
        return " ".join(path)


@for_each("path", COMMANDS)
def test_the_help_of_a_verb(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A short summary, a sentence for each option, the shape of its JSON, and examples."""
    command, text = COMMANDS[path], help_of(path, COMMANDS[path])
    summary = command.get_short_help_str(limit=1000)
    assert re.fullmatch(r"[A-Z].*[^.]\.", summary), summary
    assert len(summary) < SUMMARY_CHARS_MAX, summary
    told = {verb: line for group in GROUPS.values() for verb, line in group.items()}
    assert told.get(path, summary) == summary
    assert [line for line in text.splitlines() if len(line) > COLUMNS] == []
    helps = {each.name: each.help for each in command.params if isinstance(each, click.Option)}
    assert [name for name, line in helps.items() if not (line or "").endswith((".", "db"))] == []
    assert "--json" in [option for each in command.params for option in each.opts]
    assert block(text, "--json:")
    found = list(calls(text))
    assert len(found) in EXAMPLES
    for words in found:
        assert words[0] == "limpet"
        assert f"{parse(words)} ".startswith(f"{path} "), words
    assert run([*path.split(), "--nonsense"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"Usage: limpet {path} ")
    assert len(err.splitlines()) == 2


def test_the_list_of_verbs(command: Command) -> None:
    assert {*VERBS, "runs abort", "runs adopt", "runs show"} == {*COMMANDS}
    helped, bare = command("--help"), command()
    assert (helped.returncode, helped.stderr) == (0, "")
    assert (bare.returncode, bare.stdout) == (2, "")
    for text in (helped.stdout, bare.stderr):
        verbs = text.partition(f"\n{next(iter(GROUPS))}:\n")[2]
        assert re.findall(r"^  (\w+)  +[A-Z]", verbs, re.M) == list(VERBS)
        assert re.findall(r"^  .*[^.]\.$", verbs, re.M) == re.findall(r"^ .*", verbs, re.M)
    done = command("runs", "adopt", "--help", COLUMNS="200")
    assert done.stdout == help_of("runs adopt", COMMANDS["runs adopt"]) + "\n"


def test_the_help_imports_no_verb() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MODULES], capture_output=True, text=True, check=True
    )
    found = {name for name in done.stderr.split() if name.startswith("limpet.cli.")}
    assert found == {"limpet.cli._app", "limpet.cli._exits"}
    assert "rich.console" not in done.stderr.split()
