"""What holds for every verb: its help, its examples, `--json`, and what it does not understand."""

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile

import click
import pytest

from docs._make.cli import help_of, verbs
from limpet.cli._app import GROUPS, VERBS, app, run
from tests.cli.conftest import Command
from tests.each_case import each_case

COMMANDS = dict(verbs())
SUMMARY_CHARS_MAX = 60  # with the longest verb it fits into 80 columns
COLUMNS = 100
EXAMPLES = range(1, 5)
IN_QUOTES = re.compile(r'"\$\((.*)\)"')

each_verb = each_case("path", COMMANDS)


def block(path: str, title: str) -> list[str]:
    """Return the lines of a help that stand below a title, up to the next empty line."""
    lines = iter(help_of(path, COMMANDS[path]).splitlines())
    for line in lines:
        if line.strip().startswith(title):
            return [line.strip(), *(each.strip() for each in takewhile(str.strip, lines))]
    return []


def calls(path: str) -> Iterator[list[str]]:
    """Yield the words of each example of a verb, as a shell gives them to the command."""
    for line in block(path, "Examples:")[1:]:
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


def test_there_is_something_to_look_at() -> None:
    assert set(VERBS) < set(COMMANDS)
    assert {"runs abort", "runs adopt"} < set(COMMANDS)


@each_verb
def test_the_summary_is_one_short_sentence(path: str) -> None:
    summary = COMMANDS[path].get_short_help_str(limit=1000)
    assert re.fullmatch(r"[A-Z].*[^.]\.", summary), summary
    assert len(summary) < SUMMARY_CHARS_MAX, summary


@each_verb
def test_every_option_has_help(path: str) -> None:
    options = [each for each in COMMANDS[path].params if isinstance(each, click.Option)]
    assert [each.name for each in options if not each.help] == []
    assert [each.name for each in options if not (each.help or "").endswith((".", "db"))] == []


@each_verb
def test_the_help_is_no_wider_than_it_should_be(path: str) -> None:
    lines = help_of(path, COMMANDS[path]).splitlines()
    assert [line for line in lines if len(line) > COLUMNS] == []


@each_verb
def test_programs_get_json_in_a_documented_shape(path: str) -> None:
    options = [option for each in COMMANDS[path].params for option in each.opts]
    assert "--json" in options
    assert block(path, "--json:")


@each_verb
def test_the_examples_are_calls_of_the_verb(path: str) -> None:
    found = list(calls(path))
    assert len(found) in EXAMPLES
    for words in found:
        assert words[0] == "limpet"
        assert f"{parse(words)} ".startswith(f"{path} "), words


def test_a_wrong_example_is_noticed() -> None:
    assert parse(["limpet", "runs", "--status", "failed"]) == "runs"
    assert parse(["limpet", "runs", "abort", "nightly"]) == "runs abort"
    for words in ("ls --nonsense", "log", "ls -n x", "runs abort", "runs --status odd"):
        with pytest.raises(click.UsageError):
            parse(["limpet", *words.split()])


@each_verb
def test_what_is_not_understood_is_2(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*path.split(), "--nonsense"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"Usage: limpet {path} ")
    assert len(err.splitlines()) == 2


def test_the_list_of_verbs(command: Command) -> None:
    helped, bare = command("--help"), command()
    assert (helped.returncode, helped.stderr) == (0, "")
    assert (bare.returncode, bare.stdout) == (2, "")
    for text in (helped.stdout, bare.stderr):
        verbs = text.partition(f"\n{next(iter(GROUPS))}:\n")[2]
        assert re.findall(r"^  (\w+)  +[A-Z]", verbs, re.M) == list(VERBS)
        assert re.findall(r"^  .*[^.]\.$", verbs, re.M) == re.findall(r"^ .*", verbs, re.M)


@each_case("path", ["import", "runs adopt"])
def test_the_help_of_a_verb(path: str, command: Command) -> None:
    done = command(*path.split(), "--help", COLUMNS="200")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == help_of(path, COMMANDS[path]) + "\n"
