"""The errors: one class for each way in which a caller reacts.

Messages state a fact in lower case and end with the variables as ``name=`value` ``. They never
hold a state or a secret. The error of a driver is chained as the cause.
"""

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from limpet.model import ScopeKey


CLOSED = "the store is closed: open it again with limpet.open"


class LimpetError(Exception):
    """The base class of all errors that Limpet raises on purpose.

    Example:
        try:
            chat.save({"first": True}, expect=None)
        except limpet.LimpetError as error:
            print(error, error.scope, error.id)

    Attributes:
        scope: the scope that it is about, if it is about one.
        id: the id of the snapshot that it is about, if it is about one.
    """

    def __init__(
        self, *args: object, scope: "ScopeKey | None" = None, id: str | None = None
    ) -> None:
        """Take the message, and what it says as fields. Errors can be pickled."""
        super().__init__(*args)
        self.scope = scope
        self.id = id


class NotFound(LimpetError):
    """There is nothing with this id. Treat it as absent.

    Example:
        try:
            chat.update("no-such-id", lambda snapshot: None)
        except limpet.NotFound as error:
            print(error.id)
    """


class AlreadyExists(LimpetError):
    """The id exists with other content, or the name is taken. Choose another.

    Example:
        try:
            chat.save({"other": 1}, id="step-7")
        except limpet.AlreadyExists as error:
            print(error.id)
    """


class Conflict(LimpetError):
    """Another writer changed what was compared. Nothing was stored: read, decide, retry.

    Example:
        try:
            chat.save({"first": True}, expect=None)
        except limpet.Conflict as error:
            print(error.expected, error.found)

    Attributes:
        expected, found: the revision that was expected, and the one that was found; None for none.
            Set where revisions were compared.
        owner, expires_at: who holds the lease, and until when unless it is renewed. Set where a
            claim failed.
    """

    def __init__(
        self,
        *args: object,
        scope: "ScopeKey | None" = None,
        id: str | None = None,
        expected: str | None = None,
        found: str | None = None,
        owner: str | None = None,
        expires_at: datetime | None = None,
    ) -> None:
        """Take the message, and what it says as fields."""
        super().__init__(*args, scope=scope, id=id)
        self.expected = expected
        self.found = found
        self.owner = owner
        self.expires_at = expires_at


class InvalidInput(LimpetError):
    """An argument is not valid. Nothing was stored: fix the call.

    Example:
        try:
            chat.save({"score": float("nan")})
        except limpet.InvalidInput as error:
            print(error.path)

    Attributes:
        path: where in a state, metadata or note the value is that is refused, as a JSON Pointer;
            None if it is about something else.
    """

    def __init__(self, *args: object, path: str | None = None) -> None:
        """Take the message, and the path that it names."""
        super().__init__(*args)
        self.path = path


class Unsupported(LimpetError):
    """This engine cannot do it, or an extra is not installed. Choose another, or install it.

    Example:
        try:
            store.find("step-7")
        except limpet.Unsupported as error:
            print(error)
    """


class Unavailable(LimpetError):
    """The storage did not answer. Retry later.

    Example:
        try:
            chat.save({"step": 1}, id="step-1")
        except limpet.Unavailable as error:
            print("not stored" if error.outcome_known else "perhaps stored: save it again")

    `outcome_known` is True when the write certainly did not happen, and False when it may have
    happened: repeating it with the same id is harmless.
    """

    def __init__(self, *args: object, outcome_known: bool = True) -> None:
        """Take the message, and whether the write certainly did not happen."""
        super().__init__(*args)
        self.outcome_known = outcome_known


class Corrupt(LimpetError):
    """Stored bytes fail their checksum. Stop and run `limpet check`; nothing was overwritten.

    Example:
        try:
            chat.load()
        except limpet.Corrupt:
            for finding in store.check(): print(finding.message)
    """
