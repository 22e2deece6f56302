"""What is logged: a line with its facts, which are fields of the record as well.

It is read by people who may not see the data: never an id, a name or a state.
"""

from typing import Any


def info(message: str, **facts: Any) -> None:
    import logging  # which takes longer to load than most of Limpet, and is used for events only

    _log(logging.INFO, message, facts)


def warning(message: str, **facts: Any) -> None:
    import logging

    _log(logging.WARNING, message, facts)


def _log(level: int, message: str, facts: dict[str, Any]) -> None:
    import logging

    shown = " ".join(f"{name}=`%({name})s`" for name in facts)
    logging.getLogger("limpet").log(level, f"{message}. {shown}", facts, extra=facts, stacklevel=3)
