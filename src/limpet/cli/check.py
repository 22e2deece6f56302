"""`limpet check`: read everything, tell what is wrong, and mend it if asked."""

from collections import Counter

import click
from rich.console import Console
from rich.text import Text

import limpet
from limpet.cli import _exits
from limpet.cli._shared import (
    echo_json,
    existing_store,
    finding_json,
    json_option,
    make_console,
    url_option,
)
from limpet.views.sizes import count_text, visible

_STYLES = {"error": "bad", "warning": "odd", "info": "accent"}


@click.command()
@click.option("--repair", is_flag=True, help="Mend what can be mended without losing anything.")
@url_option
@json_option
def check(repair: bool, url: str, as_json: bool) -> int:
    """Read everything stored, and tell what is wrong with it.

    Changes nothing, unless --repair is given. Ends with 0 if nothing is wrong, or all of it was
    repaired; with 5 if an error is left, and with 1 if a warning is. Remarks (info) are about what
    is allowed, such as a parent that was deleted, and do not count.

    \b
    --json: a line for each finding, as it is found:
            {"severity": "error", "warning" or "info", "code": text, "message": text,
             "scope": {"session_id": text, "scope_id": text, "kind": text} or null,
             "id": text or null, "repaired": true or false}

    \b
    Examples:
      limpet check
      limpet check --json --url postgresql://db.example/agents
    """
    return examine(url, repair=repair, as_json=as_json)


def examine(url: str, *, repair: bool, as_json: bool) -> int:
    """Print each finding and what they amount to, and return the exit code that follows."""
    console = make_console()
    found: Counter[str] = Counter()
    left: Counter[str] = Counter()
    with existing_store(url) as store:
        for finding in store.repair() if repair else store.check():
            found[finding.severity] += 1
            left[finding.severity] += not finding.repaired
            if as_json:
                echo_json(finding_json(finding), indent=None)
            else:
                _draw(console, finding)
    if not as_json:
        _sum_up(console, found, left, repair=repair)
    if left["error"]:
        return _exits.CORRUPT
    return _exits.FOUND if left["warning"] else _exits.FINE


def _draw(console: Console, finding: limpet.Finding) -> None:
    line = Text.assemble(
        (f"{finding.severity:<7}  ", _STYLES.get(finding.severity, "")),
        (f"{visible(finding.code)}  ", "title"),
        visible(finding.message),
        ("  repaired" if finding.repaired else "", "good"),
    )
    where = [] if finding.scope is None else [*finding.scope]
    where += [] if finding.id is None else [finding.id]
    if where:
        line.append(f"\n         {' · '.join(map(visible, where))}", "quiet")
    console.print(line, soft_wrap=True)


def _sum_up(console: Console, found: Counter[str], left: Counter[str], *, repair: bool) -> None:
    if not found.total():
        console.print(Text("✓ nothing is wrong", "good"))
        return
    parts = [
        count_text(found["error"], "error"),
        count_text(found["warning"], "warning"),
        *([count_text(found["info"], "remark")] if found["info"] else []),
    ]
    mended = found.total() - left.total()
    if repair:
        parts.append(f"{mended:,} repaired, {left.total():,} left")
    style = "bad" if left["error"] else "odd" if left["warning"] else "good"
    console.print(Text(", ".join(parts), style))


# `limpet repair`: mend what `limpet check` finds.


@click.command()
@url_option
@json_option
def repair(url: str, as_json: bool) -> int:
    """Read everything stored, and mend what is wrong with it.

    Only what can be mended without losing anything that can still be read. The same as
    `limpet check --repair`: ends with 0 if nothing is wrong any more, with 5 if an error is left,
    and with 1 if a warning is.

    \b
    --json: a line for each finding, as `limpet check` has it; `repaired` tells what was mended

    \b
    Examples:
      limpet repair
    """
    return examine(url, repair=True, as_json=as_json)
