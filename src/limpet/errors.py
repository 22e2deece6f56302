"""The error tree: one class for each way in which a caller reacts.

Messages state a fact in lower case and end with the variables as ``name=`value` ``. They never
hold a state or a secret. What a driver raised is chained as the cause and does not leak through.
"""


class LimpetError(Exception):
    """The root of everything that Limpet raises on purpose."""


class NotFound(LimpetError):
    """The address names nothing. Treat it as absent."""


class AlreadyExists(LimpetError):
    """This id has another body, or this name is taken. Choose another."""


class Conflict(LimpetError):
    """Somebody else moved what was compared. Nothing was stored: read, decide, retry."""


class InvalidInput(LimpetError):
    """The caller's value is not acceptable. Nothing was stored: fix the call."""


class Unsupported(LimpetError):
    """This engine cannot do it, and refuses rather than do it badly. Choose another engine."""


class Unavailable(LimpetError):
    """The storage did not answer. Retry later.

    `outcome_known` is True when the write certainly did not happen, and False when it may have
    happened: re-issue it with the same id, which is harmless.
    """

    outcome_known: bool

    def __init__(self, *args: object, outcome_known: bool = True) -> None:
        super().__init__(*args)
        self.outcome_known = outcome_known


class Corrupt(LimpetError):
    """Stored bytes fail their check. Stop; nothing was overwritten."""
