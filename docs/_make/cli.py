"""Writes docs/cli.md from the help of every verb. Run by `make docs`."""

from collections.abc import Iterator
from pathlib import Path

import click

from docs._make.pictures import PICTURES
from limpet.cli._app import GROUPS, VERBS, app
from limpet.views import refs

PAGE = Path(__file__).resolve().parent.parent / "cli.md"
_INTRODUCTION = Path(__file__).with_name("cli.md.in")
_COLUMNS = 98  # a terminal of 100 columns, less Click's margin
_FIRST = {next(iter(verbs)): title for title, verbs in GROUPS.items()}


def page() -> str:
    """Return the whole page."""
    lines = (refs.__doc__ or "").splitlines()
    table = "\n".join(line for line in lines if line.startswith("|"))
    introduction = _INTRODUCTION.read_text(encoding="utf-8").replace("{snapshots}", table)
    parts = [introduction, *_contents()]
    for path, command in verbs():
        if path in _FIRST:
            parts.append(f"## {_FIRST[path]}\n")
        parts.append("\n".join(_section(path, command)))
    return "\n".join(parts)


def verbs() -> Iterator[tuple[str, click.Command]]:
    """Yield every verb and subcommand with its name, in the order of the help."""
    root = click.Context(app, info_name="limpet")
    for name in VERBS:
        verb = app.get_command(root, name)
        if verb is None:
            raise LookupError(name)
        yield name, verb
        if isinstance(verb, click.Group):
            yield from ((f"{name} {below}", each) for below, each in verb.commands.items())


def help_of(path: str, command: click.Command) -> str:
    """Return the help of a verb as `--help` prints it in a terminal of 100 columns."""
    context = click.Context(
        app, info_name="limpet", terminal_width=_COLUMNS, **app.context_settings
    )
    *groups, name = path.split()
    for group in groups:
        above = app.get_command(context, group)
        context = click.Context(above or app, parent=context, info_name=group)
    return command.get_help(click.Context(command, parent=context, info_name=name))


def _contents() -> Iterator[str]:
    yield "## All verbs\n"
    yield "| | |\n|---|---|"
    for path, command in verbs():
        if path in _FIRST:
            yield f"| **{_FIRST[path]}** | |"
        yield f"| [{path}](#{_anchor(path)}) | {command.get_short_help_str(limit=200)} |"
    yield ""


def _section(path: str, command: click.Command) -> Iterator[str]:
    yield f"### limpet {path}\n"
    for picture in PICTURES:
        if picture.verb == path:
            yield f"![{picture.about}](images/{picture.name}.svg)\n"
    yield f"```text\n{help_of(path, command)}\n```\n"


def _anchor(path: str) -> str:
    return f"limpet-{path.replace(' ', '-')}"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
