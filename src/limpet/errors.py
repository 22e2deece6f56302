"""The errors: one class for each way in which a caller reacts.

Messages state a fact in lower case and end with the variables as ``name=`value` ``. They never
hold a state or a secret. The error of a driver is chained as the cause.
"""


class LimpetError(Exception):
    """The base class of all errors that Limpet raises on purpose."""


class NotFound(LimpetError):
    """There is nothing with this id. Treat it as absent."""


class AlreadyExists(LimpetError):
    """The id exists with other content, or the name is taken. Choose another."""


class Conflict(LimpetError):
    """Another writer changed what was compared. Nothing was stored: read, decide, retry."""


class InvalidInput(LimpetError):
    """An argument is not valid. Nothing was stored: fix the call."""


class Unsupported(LimpetError):
    """This engine cannot do it. Choose another engine."""


class Unavailable(LimpetError):
    """The storage did not answer. Retry later.

    `outcome_known` is True when the write certainly did not happen, and False when it may have
    happened: repeating it with the same id is harmless.
    """

    outcome_known: bool

    def __init__(self, *args: object, outcome_known: bool = True) -> None:
        super().__init__(*args)
        self.outcome_known = outcome_known


class Corrupt(LimpetError):
    """Stored bytes fail their checksum. Stop and run `limpet check`; nothing was overwritten."""
