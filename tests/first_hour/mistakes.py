"""What newcomers get wrong, and what each message must tell them to do next."""

from typing import NamedTuple

_BEGIN = """\
import limpet

store = limpet.open("mistakes.db")
chat = store.scope("chat-1")
first = chat.save({"messages": []})
"""


class Mistake(NamedTuple):
    """A script or a command line that fails, and words that its message has."""

    title: str
    text: str
    says: tuple[str, ...]
    is_command: bool = False


def script(title: str, line: str, *says: str, begin: str = _BEGIN) -> Mistake:
    return Mistake(title, f"{begin}{line}\n", says)


def opening(title: str, line: str, *says: str) -> Mistake:
    return script(title, line, *says, begin="import limpet\n\n")


def command(title: str, text: str, *says: str) -> Mistake:
    return Mistake(title, text, says, is_command=True)


OPENING = [  # others are in tests/unit/test_opening.py
    opening(
        "a folder that does not exist", 'limpet.open("sqlite:///no/such/agents.db")', "no/such"
    ),
    opening("a file that is no database", 'limpet.open("notes.db")', "notes.db"),
]

SAVING = [
    script(
        "a date in the state",
        "import datetime\nchat.save({'at': datetime.datetime.now()})",
        "default=limpet.jsonable",
        "at",
    ),
    script("a set in the state", "chat.save({'tags': {'a', 'b'}})", "default=limpet.jsonable"),
    script("an object in the state", "chat.save({'me': object()})", "default=limpet.jsonable"),
    script("a key that is no text", "chat.save({'seen': {1: 'x'}})", "seen", "str(key)"),
    script("not a number", "chat.save({'score': float('nan')})", "score"),
    script("a state that contains itself", "s = {}\ns['self'] = s\nchat.save(s)", "cycle"),
    script("an empty session id", "store.scope('')", "session_id"),
    script("a session id that is a number", "store.scope(42)", "session_id", "text"),
    script("a label that is no text", "chat.save({}, labels={'turn': 1})", "turn", "text"),
    script("an id as expect", "chat.save({}, expect=first.id)", ".revision"),
    script(
        "somebody else saved first",
        "chat.save({'n': 1})\nchat.save({'n': 2}, expect=first.revision)",
        "load",
    ),
    script(
        "another state under the same id",
        "chat.save({'n': 1}, id='a')\nchat.save({'n': 2}, id='a')",
        "overwrite=True",
    ),
    script("a message that is not in a list", "chat.append('messages', {'role': 'user'})", "list"),
    script("a text that is appended", "chat.append('messages', 'hello')", "list"),
    script("append to what is no list", "chat.save({'n': 1})\nchat.append('n', [2])", "list"),
    script("a metadata that is no object", "chat.save({}, metadata='me')", "metadata"),
]

READING = [
    script("an id that does not exist", "chat.update('nope', lambda s: s)", "nope"),
    script("a fork of what does not exist", "chat.fork('nope')", "nope"),
    script(
        "a fork to a name that is taken",
        "chat.fork(first.id, scope_id='b')\nchat.fork(first.id, scope_id='b')",
        "scope_id",
    ),
    script("a diff with what does not exist", "chat.diff(first.id, 'nope')", "nope"),
    script("a limit that is text", "list(chat.history(limit='10'))", "limit", "whole number"),
    script("history after what does not exist", "list(chat.history(after='nope'))", "nope"),
    script(
        "a snapshot of another scope",
        "store.scope('chat-2').load(first)",
        "chat-1",
    ),
    script("prune without a rule", "chat.prune()", "keep_last", "older_than"),
    script("prune with days as a number", "chat.prune(older_than=30)", "timedelta"),
    script("prune that keeps less than none", "chat.prune(keep_last=-1)", "keep_last"),
    script("a store that is closed", "store.close()\nchat.load()", "limpet.open"),
]

WORKING = [
    script("a claim without with", "lease = chat.claim(owner='me')\nlease.save({})", "with"),
    script(
        "a scope that another worker holds",
        "with chat.claim(owner='worker-1'):\n    with chat.claim(owner='worker-2'): ...",
        "worker-1",
        "wait_s",
    ),
    script(
        "a lease that is no time",
        "with chat.claim(owner='me', ttl_s='30s'): ...",
        "ttl_s",
    ),
    script(
        "a run that another worker holds",
        "from limpet import runs\n"
        "with runs.start(store, 'run-1'):\n    with runs.start(store, 'run-1'): ...",
        "holds the lease until",
        "wait_s",
    ),
]

COMMANDS = [
    command("a verb with a typing error", "limpet lss", "ls"),
    command("an option with a typing error", "limpet ls --ulr x.db", "--url"),
    command("a store that is not there", "limpet ls --url sqlite:///nothing.db", "nothing.db"),
    command("no store at all", "mkdir -p empty; cd empty; limpet ls", "LIMPET_URL"),
    command("a store with a typing error", "limpet ls --url sqlit:///a.db", "sqlite"),
    command("a snapshot that is not there", "limpet show nope --url mistakes.db", "limpet ls"),
    command("show without an address", "limpet show", "limpet ls"),
    command("prune without a rule", "limpet prune chat-1 --url mistakes.db", "--keep-last"),
    command("rm without a yes", "limpet rm chat-1 --url mistakes.db < /dev/null", "--yes"),
    command("a limit that is text", "limpet log chat-1 -n ten --url mistakes.db", "ten"),
    command("an import of something else", "limpet import notes.db --url mistakes.db", "export"),
    command("a check of a file that is no store", "limpet check --url notes.db", "notes.db"),
]

MISTAKES = {
    "Opening": OPENING,
    "Saving": SAVING,
    "Reading": READING,
    "Working together": WORKING,
    "Command line": COMMANDS,
}
