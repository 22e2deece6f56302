"""A tool loop without a framework: every message is saved before the next step.

python tool_loop.py --crash      # books a flight, and is killed before the hotel
python tool_loop.py              # books only the hotel, and answers
"""

import json
import sys
from signal import SIGKILL, raise_signal

import limpet


def ask_model(messages):
    """A fake for `client.chat.completions.create(...).choices[0].message.to_dict()`."""
    results = [message["content"] for message in messages if message["role"] == "tool"]
    if results:
        return {"role": "assistant", "content": f"Done: {' and '.join(results)}."}
    wanted = [{"name": "book", "arguments": json.dumps({"what": w})} for w in ("flight", "hotel")]
    calls = [{"id": f"call_{n}", "type": "function", "function": f} for n, f in enumerate(wanted)]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def book(what):
    if what == "hotel" and "--crash" in sys.argv:
        raise_signal(SIGKILL)
    print("booking a", what)
    return f"the {what} is booked"


def next_message(messages):
    """Run the first tool call that has no result; if there is none, ask the model."""
    done = {message.get("tool_call_id") for message in messages}
    for call in [call for message in messages for call in message.get("tool_calls") or []]:
        if call["id"] not in done:
            result = book(**json.loads(call["function"]["arguments"]))
            return {"role": "tool", "tool_call_id": call["id"], "content": result}
    return ask_model(messages)


def answer(chat):
    """Go on after the last saved message, until the model has answered."""
    messages = chat.load().state["messages"]
    while messages[-1]["role"] != "assistant" or messages[-1].get("tool_calls"):
        messages.append(next_message(messages))
        chat.append("messages", messages[-1:])  # on the disk before the next step
    return messages[-1]["content"]


with limpet.open() as store:  # $LIMPET_URL, or else limpet.db in this folder
    chat = store.scope("trip")
    if chat.load() is None:
        chat.save({"messages": [{"role": "user", "content": "To Lisbon, please."}]})
    print(answer(chat))
    trial = chat.fork(list(chat.history())[2])  # the newest is [0]; go back to before the hotel
    trial.append("messages", [{"role": "tool", "tool_call_id": "call_1", "content": "no hotel"}])
    print("Else:", answer(trial))
