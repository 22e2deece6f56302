"""`limpet check` and `limpet repair`: read everything, report errors, and repair them."""

from collections import Counter

import click
from rich.console import Console
from rich.text import Text

import limpet
from limpet.cli import _exits
from limpet.cli._shared import echo_json, existing_store, store_options
from limpet.cli._terminal import make_console
from limpet.core.wire import finding_json
from limpet.views.format import count_text, visible

_STYLES = {"error": "bad", "warning": "odd", "info": "accent"}


@click.command()
@click.option("--repair", is_flag=True, help="Repair what can be repaired without losing data.")
@store_options
def check(repair: bool, url: str, as_json: bool) -> int:
    """Check everything in a store for errors.

    Changes nothing unless --repair is given. The exit code is 5 if an error is left, 1 if only
    warnings are left, else 0. Findings of severity info do not count: they describe allowed states,
    such as a session without scopes. A parent that was deleted or pruned is no finding.

    \b
    --json: a line for each finding:
            {"severity": "error", "warning" or "info", "code": text,
             "message": text, "scope": {"session_id", "scope_id", "kind"} or null,
             "id": text or null, "repaired": true or false}

    \b
    Examples:
      limpet check
      limpet check --json --url postgresql://db.example/agents
    """
    return _check(url, repair=repair, as_json=as_json)


@click.command()
@store_options
def repair(url: str, as_json: bool) -> int:
    """Repair what can be repaired without losing data.

    The same as `limpet check --repair`. The exit code is 5 if an error is left, 1 if only warnings
    are left, else 0.

    \b
    --json: a line for each finding, as in `limpet check`

    \b
    Examples:
      limpet repair
    """
    return _check(url, repair=True, as_json=as_json)


def _check(url: str, *, repair: bool, as_json: bool) -> int:
    console = make_console()
    found: Counter[str] = Counter()
    left: Counter[str] = Counter()
    with existing_store(url, read_only=not repair) as store:
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
        console.print(Text("✓ no errors", "good"))
        return
    parts = [
        count_text(found["error"], "error"),
        count_text(found["warning"], "warning"),
        *([count_text(found["info"], "info", "info")] if found["info"] else []),
    ]
    if repair:
        parts.append(f"{found.total() - left.total():,} repaired, {left.total():,} left")
    style = "bad" if left["error"] else "odd" if left["warning"] else "good"
    console.print(Text(", ".join(parts), style))
