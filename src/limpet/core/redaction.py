"""Replacing content by its path, or by what a caller's function says of it.

In a state a path is a JSON Pointer: empty, or beginning with `/`. Others begin with what they lead
into: `metadata/error`, `labels/user`, `status`, `notes/title/author`.
"""

from collections.abc import Callable
from typing import Any

from limpet.errors import InvalidInput
from limpet.model import JSON

_WHOLE = ("", "metadata", "status")
_PLACES = ("/", "metadata/", "labels/", "notes/")


class Redaction:
    """What to replace, and by what."""

    def __init__(self, what: str | Callable[[str, JSON], bool], replacement: JSON) -> None:
        if not callable(what) and not isinstance(what, str):
            raise InvalidInput(f"give a path or a function. type=`{type(what).__name__}`")
        if isinstance(what, str) and what not in _WHOLE and not what.startswith(_PLACES):
            raise InvalidInput(
                "a path into the state begins with /, others with metadata/, labels/ or notes/, or "
                f"are metadata or status. path=`{what}`"
            )
        self._what = what
        self._replacement = replacement

    def value(self, path: str, value: Any) -> Any:
        """Return a value with what matches replaced, in it or as a whole; it may be changed."""
        if self._matches(path, value):
            return self._replacement
        if isinstance(value, dict) and self._may_be_in(path):
            for key, each in value.items():
                value[key] = self.value(f"{path}/{_escaped(key)}", each)
        elif isinstance(value, list) and self._may_be_in(path):
            for at, each in enumerate(value):
                value[at] = self.value(f"{path}/{at}", each)
        return value

    def metadata(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return metadata, which must be an object."""
        found = self.value("metadata", value)
        return found if isinstance(found, dict) else {}

    def text(self, path: str, value: str) -> str:
        """Return a value that must be a text."""
        found = self.value(path, value)
        return found if isinstance(found, str) else ""

    def labels(self, labels: dict[str, str]) -> dict[str, str]:
        return {name: self.text(f"labels/{_escaped(name)}", labels[name]) for name in labels}

    def note(self, name: str, value: JSON) -> JSON:
        return self.value(f"notes/{_escaped(name)}", value)

    def _may_be_in(self, path: str) -> bool:
        return not isinstance(self._what, str) or self._what.startswith(f"{path}/")

    def _matches(self, path: str, value: Any) -> bool:
        if isinstance(self._what, str):
            return self._what == path
        answer = self._what(path, value)
        if isinstance(answer, bool):
            return answer
        # A coroutine, for example, would count as true, and all would be replaced.
        raise InvalidInput(
            f"the function must return True or False. type=`{type(answer).__name__}` path=`{path}`"
        )


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
