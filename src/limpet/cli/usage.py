"""`limpet usage`: the tokens that models took, and what they cost."""

import csv
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path

import click
from rich.text import Text

import limpet
from limpet.cli import _exits
from limpet.cli._shared import Skipped, complete_session, echo_json, with_store
from limpet.cli._terminal import Cells, Column, output, print_table
from limpet.views import usage as views
from limpet.views.format import status_or_dash, visible
from limpet.views.refs import find_session
from limpet.views.usage import Row

_RANKS = (3, 0, 4, 6, 0, 5)  # of the numbers
_TAKEN = ("", "message", "cost", "unpriced", *views.Usage._fields)  # no names of labels, in JSON


@click.command()
@click.argument("session", required=False, shell_complete=complete_session)
@click.option(
    "--by",
    metavar="day|model|session|label=NAME",
    help="What a row is. Default: a session, or each message of SESSION.",
)
@click.option(
    "--prices",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The prices of models, as TOML.",
)
@click.option(
    "--csv",
    "as_csv",
    is_flag=True,
    help="Print CSV, with a line of names first, and ' before a text that looks like a formula.",
)
@with_store()
def usage(
    store: limpet.Store,
    session: str | None,
    by: str | None,
    prices: Path | None,
    as_csv: bool,
    as_json: bool,
) -> int:
    """Show the tokens that models took, and what they cost.

    They are what the messages in the current states say: calls of a model, tokens of the input
    (cached and written: of these, from and to a cache) and of the output (of these: reasoning). A
    message counts once in a session. A day is in UTC: that of a message that has a time, else of
    the last change.

    FILE has a table for each model, or pattern of names, with prices for a million tokens:

    \b
      currency = "USD"
      ["gpt-5*"]
      input = 1.25
      output = 10.0
      cached = 0.125    # if not given: as input; and so is written

    The longest pattern that fits counts. Costs without the price of a model end with +. The exit
    code is 5 if a damaged head was skipped.

    \b
    --json: a line for each row:
            {"session", "message", "day", "model" or the label: text, "calls": n,
             "input": n, "cached": n, "written": n, "output": n, "reasoning": n,
             "cost": number or null, "unpriced": calls without a price}
            and of each message "model": text

    \b
    Examples:
      limpet usage --prices prices.toml
      limpet usage --by label=customer --csv
      limpet usage trip-to-lisbon
    """
    name = None if session is None else find_session(store, session)
    by = by or ("session" if name is None else "message")
    title = by.removeprefix(views.LABEL)
    is_label = title != by and title not in _TAKEN
    if by not in ("message", "session", "day", "model") and not is_label:
        raise click.BadParameter("use day, model, session or label=NAME", param_hint="--by")
    damaged, priced = Skipped(), _prices(prices)
    sessions = [name] if name else store.sessions()
    found = views.report(store, sessions, by, priced, lambda error: damaged.add(str(error)))
    if as_json or as_csv:
        _print(found, title, as_csv=as_csv)
    elif (first := next(found, None)) is None:
        click.echo("no message says what it took", err=True)
    else:
        with output(wide=True) as console:
            print_table(console, _cells(title, priced), _with_total(chain([first], found)))
    damaged.end("heads")
    return _exits.CORRUPT if damaged.count else _exits.FINE


def _prices(path: Path | None) -> views.Prices:
    try:
        return views.parse_prices("" if path is None else path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"cannot read {path}: {error}", param_hint="--prices") from error


def _print(rows: Iterable[Row], title: str, *, as_csv: bool) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    for number, row in enumerate(rows):
        shape = {
            title: row.key,
            **({"model": row.model} if title == "message" else {}),
            **row.usage._asdict(),
            "cost": round(row.cost, 6) if row.unpriced < row.usage.calls else None,
            "unpriced": row.unpriced,
        }
        if as_csv:
            writer.writerows([shape] if number == 0 else [])
            writer.writerow(map(_csv_cell, shape.values()))
        else:
            echo_json(shape, indent=None)


def _csv_cell(value: object) -> object:
    """A spreadsheet would run a text that begins like a formula."""
    is_formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if is_formula else value


def _with_total(rows: Iterable[Row]) -> Iterator[Row]:
    everything = Row("total")
    for row in rows:
        everything = everything.plus(row)
        yield row
    yield everything


def _cells(title: str, prices: views.Prices) -> Cells:
    def number(name: str, row: Row) -> Text:
        count = getattr(row.usage, name)
        return Text(f"{count:,}" if count else "")

    def cost(row: Row) -> Text:
        known = row.unpriced < row.usage.calls
        return Text(f"{row.cost:,.4f}{'+' if row.unpriced else ''}" if known else "")

    return {
        Column(title, cells_min=12): lambda row: Text(status_or_dash(row.key), "title"),
        Column("model", rank=2): lambda row: Text(visible(row.model)),
        **{
            Column(name, right=True, rank=rank): partial(number, name)
            for name, rank in zip(views.Usage._fields, _RANKS, strict=True)
        },
        Column(f"cost {visible(prices.currency)}".strip(), right=True): cost,
    }
