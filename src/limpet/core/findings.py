"""Findings of `check`: a fact, and the values that locate it."""

from limpet.model import Finding, ScopeKey

_SHOWN_CHARS_MAX = 200


def finding(
    severity: str,
    code: str,
    fact: str,
    *,
    scope: ScopeKey | None = None,
    id: str | None = None,
    repaired: bool = False,
    **values: object,
) -> Finding:
    named = " ".join(f"{name}=`{shown(value)}`" for name, value in values.items())
    message = f"{fact}. {named}" if named else fact
    return Finding(severity, code, message, scope, id, repaired)


def shown(value: object) -> str:
    """Return a short printable text of a value, whatever bytes it was read from."""
    text = str(value).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _SHOWN_CHARS_MAX else text[:_SHOWN_CHARS_MAX] + "…"
