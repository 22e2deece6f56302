"""Events of Google's Agent Development Kit, as its sessions store them."""

from limpet.model import JSON
from limpet.views.chat.model import Fields, text_of

_SHOWN = ("state_delta", "transfer_to_agent", "rewind_before_invocation_id", "escalate")
_ERRORS = ("error_code", "error_message")


def is_event(value: JSON) -> bool:
    return (
        isinstance(value, dict)
        and text_of(value, "author") is not None
        and isinstance(value.get("actions"), dict)
        and "role" not in value
    )


def message_of(event: Fields) -> Fields:
    """Return an event as a message: what was said, by whom, and what it changed."""
    content, actions, author = event.get("content"), event["actions"], event["author"]
    message: dict[str, JSON] = {"role": "user" if author == "user" else "assistant"}
    if author != "user":
        message["name"] = author
    message["parts"] = content.get("parts") if isinstance(content, dict) else content
    message.update({key: actions[key] for key in _SHOWN if actions.get(key)})
    message.update({key: event[key] for key in _ERRORS if event.get(key)})
    return message


def is_silent(value: JSON) -> bool:
    """Return whether this is an event that says and changes nothing, like the end of an agent."""
    if not is_event(value):
        return False
    return not any(each for key, each in message_of(value).items() if key not in ("role", "name"))
