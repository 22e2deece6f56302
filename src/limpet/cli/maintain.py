"""`limpet policy`, `check`, `compact` and `rekey`."""

from collections import Counter
from dataclasses import asdict
from typing import Any

import click

import limpet
from limpet.cli import _exits
from limpet.cli._shared import (
    Count,
    duration,
    echo_json,
    existing_store,
    store_options,
    with_store,
)
from limpet.cli._terminal import say
from limpet.core.retention import rule_json
from limpet.core.wire import finding_json
from limpet.retention import Policy, Rule
from limpet.views.format import count_text, size_text, visible

_STYLES = {"error": "bad", "warning": "odd", "info": "accent"}


@click.command()
@click.argument("action", type=click.Choice(("show", "set", "rm")), default="show")
@click.option("--prefix", metavar="TEXT", default="", help="Sessions with this prefix.")
@click.option("--kind", metavar="KIND", help="Scopes of this kind.")
@click.option("--keep-last", type=Count(0), metavar="N", help="Keep the newest N of each scope.")
@click.option("--older-than", type=duration, metavar="TIME", help="Keep younger ones, such as 30d.")
@click.option("--keep-label", multiple=True, metavar="NAME", help="Keep those with this label.")
@click.option(
    "--delete-session-after", type=duration, metavar="TIME", help="So long after its last change."
)
@with_store(write=True)
def policy(
    store: limpet.Store, action: str, keep_label: tuple[str, ...], as_json: bool, **limits: Any
) -> None:
    """Show the retention rules of a store; set or remove one.

    `set` replaces the rule with the same --prefix and --kind. For each scope the rule with the
    longest prefix counts, then one that names its kind; one without limits keeps everything.
    Nothing is deleted until `limpet prune --policy`, or in `limpet serve --policy-every`.

    \b
    --json: a line for each rule; times are in seconds:
            {"prefix": text, "kind": text or null, "keep_last": n or null,
             "older_than": n or null, "keep_labels": [text],
             "delete_session_after": n or null}

    \b
    Examples:
      limpet policy
      limpet policy set --keep-last 50 --older-than 30d --keep-label release
      limpet policy set --prefix demo/ --delete-session-after 7d
      limpet policy rm --prefix demo/
    """
    rule, rules = Rule(keep_labels=keep_label, **limits), Policy(store)
    if rule != {"show": Rule(), "rm": Rule(rule.prefix, rule.kind), "set": rule}[action]:
        raise click.UsageError(f"{action} takes no such option: `limpet policy set` does")
    if action == "set":
        rules.set(rule)
    elif action == "rm" and not rules.remove(prefix=rule.prefix, kind=rule.kind):
        where = f"prefix=`{rule.prefix}` kind=`{rule.kind or ''}`"
        raise limpet.NotFound(f"there is no such rule: `limpet policy` shows them. {where}")
    for each in rules.rules():
        if as_json:
            echo_json(rule_json(each), indent=None)
            continue
        facts = {**asdict(each), "keep_labels": " ".join(each.keep_labels)}
        shown = [
            f"{name} {str(value).removesuffix(', 0:00:00')}"
            for name, value in facts.items()
            if name not in ("prefix", "kind") and value not in (None, "")
        ]
        name = f"{each.prefix}*  {each.kind or 'all kinds'}"
        say((visible(name), "title"), f"  {visible(', '.join(shown)) or 'keeps everything'}")


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
    found: Counter[str] = Counter()
    left: Counter[str] = Counter()
    with existing_store(url, read_only=not repair) as store:
        for finding in store.repair() if repair else store.check():
            found[finding.severity] += 1
            left[finding.severity] += not finding.repaired
            if as_json:
                echo_json(finding_json(finding), indent=None)
            else:
                _draw_finding(finding)
    if not as_json:
        _draw_sum(found, left, repair=repair)
    if left["error"]:
        return _exits.CORRUPT
    return _exits.FOUND if left["warning"] else _exits.FINE


def _draw_finding(finding: limpet.Finding) -> None:
    where = [] if finding.scope is None else [*finding.scope]
    where += [] if finding.id is None else [finding.id]
    place = f"\n         {' · '.join(map(visible, where))}" if where else ""
    say(
        (f"{finding.severity:<7}  ", _STYLES.get(finding.severity, "")),
        (f"{visible(finding.code)}  ", "title"),
        visible(finding.message),
        ("  repaired" if finding.repaired else "", "good"),
        (place, "quiet"),
    )


def _draw_sum(found: Counter[str], left: Counter[str], *, repair: bool) -> None:
    if not found.total():
        say(("✓ no errors", "good"))
        return
    parts = [
        count_text(found["error"], "error"),
        count_text(found["warning"], "warning"),
        *([count_text(found["info"], "info", "info")] if found["info"] else []),
    ]
    if repair:
        parts.append(f"{found.total() - left.total():,} repaired, {left.total():,} left")
    style = "bad" if left["error"] else "odd" if left["warning"] else "good"
    say((", ".join(parts), style))


@click.command()
@with_store(write=True)
def compact(store: limpet.Store, as_json: bool) -> None:
    """Free unused space of a store.

    No snapshot is deleted. The store can be used meanwhile.

    \b
    --json: {"bytes": how many were freed}

    \b
    Examples:
      limpet compact
    """
    freed = store.compact()
    if as_json:
        echo_json({"bytes": freed})
    else:
        say((size_text(freed), "size"), " freed")


@click.command()
@click.option("--plaintext", is_flag=True, help="Also encrypt what is not encrypted yet.")
@store_options
def rekey(plaintext: bool, url: str, as_json: bool) -> int:
    """Encrypt everything with the current keys.

    The keys are those of $LIMPET_KEYS_FILE or $LIMPET_KEYS, or of keys_file in the URL. Run it
    after a new key was added above the old one. With --plaintext a store that is not encrypted is;
    use it once, since somebody may have put in what is not encrypted later. The store can be used
    meanwhile by programs that have the new key; the exit code is 4 if one keeps writing with an
    older key. If it is interrupted, run it again. At the end everything is read and checked; the
    exit code is 5 if something cannot be decrypted, else 0.

    \b
    --json: {"encrypted": how many parts were encrypted, "errors": how many cannot be read}

    \b
    Examples:
      limpet rekey
      limpet rekey --plaintext
      limpet rekey --url "sqlite:///agents.db?keys_file=keys"
    """
    with existing_store(url, **{"allow_plaintext": True} if plaintext else {}) as store:
        count = store.rekey()
    with existing_store(url, read_only=True) as store:
        errors = sum(finding.severity == "error" for finding in store.check())
    if as_json:
        echo_json({"encrypted": count, "errors": errors})
    else:
        fact = count_text(errors, "error") if errors else "everything can be read"
        say(f"{count_text(count, 'part')} encrypted, ", (fact, "bad" if errors else "good"))
    return _exits.CORRUPT if errors else _exits.FINE
