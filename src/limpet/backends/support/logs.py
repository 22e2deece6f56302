"""What is logged: a line with its facts, which are fields of the record as well.

It is read by people who may not see the data: never an id, a name or a state.
"""

from typing import Any


def info(message: str, **facts: Any) -> None:
    _log("info", message, facts)


def warning(message: str, **facts: Any) -> None:
    _log("warning", message, facts)


def _log(level: str, message: str, facts: dict[str, Any]) -> None:
    import logging  # which takes longer to load than most of Limpet, and is used for events only

    shown = " ".join(f"{name}=`%({name})s`" for name in facts)
    log = getattr(logging.getLogger("limpet"), level)
    log(f"{message}. {shown}", facts, extra=facts, stacklevel=3)
