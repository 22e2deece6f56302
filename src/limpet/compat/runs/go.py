"""The folder of the Go store, read and written beside a Go process.

A file is written under a temporary name, synced, and moved into place, so that no reader in either
language sees a part of it; then the folder is synced. Temporary names are drawn for each save, so
that savers of one run never meet in one.
"""

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from math import isfinite
from typing import TypeAlias

import orjson

from limpet.backends.buckets import failure, flush
from limpet.compat.runs.checkpoint import ZERO_TIME, Checkpoint, bare, field_of, newest_first, taken
from limpet.compat.runs.store import make_folder
from limpet.compat.wire import folder_of
from limpet.core import codec, limits
from limpet.core.findings import finding
from limpet.errors import Corrupt, InvalidInput, LimpetError, NotFound, Unavailable
from limpet.model import JSON, Finding
from limpet.opening import draw
from limpet.runs.verbs import scope_of

# The files of the Go store: bytes from checkpoints and back, as Go's `encoding/json` does it.
#
# Go indents by two spaces, so a line that begins with two spaces and a quote is a field of the whole
# document, whatever the messages hold: a line break inside a text is escaped.

ENDS_BYTES = 16 * 1024  # what a listing reads of a file, at most
HEAD_BYTES = 8 * 1024  # run_id, task_name and iteration
TAIL_BYTES = 8 * 1024  # tokens and created_at, and a few extra fields behind them

_TEXT = rb'"(?:[^"\\\n]|\\.)*+"'
_HEAD = re.compile(
    rb'\{\n  "run_id": %b,\n  "task_name": (%b),\n  "iteration": (-?\d{1,19}),\n  "messages": '
    % (_TEXT, _TEXT)
)
_TAIL = re.compile(
    rb'\n  "input_tokens": (-?\d{1,19}),\n  "output_tokens": (-?\d{1,19}),\n  "created_at": (%b)'
    rb'(?:\n\}\Z|,\n  "[\s\S]*\n\}\Z)' % _TEXT
)
# What Go escapes beside what all do, so that JSON may stand inside HTML and JavaScript.
_ESCAPES = [
    (character.encode(), f"\\u{ord(character):04x}".encode())
    for character in ("<", ">", "&", "\u2028", "\u2029")
]
_SURROGATE = re.compile("[\ud800-\udfff]")
_TOO_FINE = re.compile(r"(\.\d{9})\d+")


def encode(checkpoint: Checkpoint) -> bytes:
    """Return the file of a checkpoint, byte for byte what Go writes for the same values.

    Numbers are exact: `1.0` stays so, and integers have as many digits as they need.

    Raises:
        InvalidInput: something in it is not JSON; the message has its path.
    """
    encoded = codec.encode(checkpoint.to_json(), what="checkpoint")
    value = codec.decode(encoded)
    try:
        data = orjson.dumps(value, option=orjson.OPT_INDENT_2)
    except TypeError:  # integers beyond 64 bits
        data = json.dumps(value, indent=2, ensure_ascii=False).encode()
    for character, escape in _ESCAPES:
        data = data.replace(character, escape)
    return data


def decode(data: bytes) -> Checkpoint:
    """Return the checkpoint in a file.

    As in Go the case of names does not matter, a field that is missing or null is zero, and what
    is not UTF-8 is read as U+FFFD. Messages are taken as they are.

    Raises:
        Corrupt: it is no checkpoint: empty, cut short, no object, or a value of another type.
    """
    value = _value(data)
    if not isinstance(value, dict):
        raise Corrupt("the file is no checkpoint: its JSON is no object")
    return _checkpoint(value)


def prove(data: bytes) -> None:
    """Raise Corrupt if a file holds no checkpoint; most are found to in a tenth of the time."""
    try:
        found = orjson.loads(data)
    except ValueError:  # it is stricter than Go
        found = None
    if isinstance(found, dict):
        _checkpoint(found)
    else:
        decode(data)


def decode_ends(head: bytes, tail: bytes) -> Checkpoint | None:
    """Return what the two ends of a file tell, without its messages and its prompt.

    None if it is not laid out as Go does it, is cut short, or has more at its ends than was read.
    """
    first, last = _HEAD.match(head), _TAIL.search(tail)
    if first is None or last is None:
        return None
    names = ("task_name", "iteration", "input_tokens", "output_tokens", "created_at")
    values = (*first.groups(), *last.groups())
    try:
        return _checkpoint({n: _value(v) for n, v in zip(names, values, strict=True)})
    except Corrupt:
        return None


def _checkpoint(wire: dict[str, JSON]) -> Checkpoint:
    fields: dict[str, JSON] = {"created_at": ZERO_TIME}
    for key, value in wire.items():
        if field_of(key) != "created_at":
            fields[key] = value
        elif value is not None:
            fields["created_at"] = _moment(value)
    try:
        return Checkpoint.from_json(fields)
    except InvalidInput as cause:
        raise Corrupt(f"the file is no checkpoint: {cause}") from cause


def _moment(value: JSON) -> JSON:
    if value == "":
        raise Corrupt("the file is no checkpoint: created_at must be an RFC 3339 time")
    # Go reads any number of digits, and goes by nine.
    return _TOO_FINE.sub(r"\1", value) if isinstance(value, str) else value


def _value(data: bytes) -> JSON:
    # Each byte that is not UTF-8 becomes one surrogate by this, and one U+FFFD in Go.
    text = _SURROGATE.sub("\ufffd", data.decode("utf-8", "surrogateescape"))
    try:
        value = _loads(text)
        if "\\ud" in text or "\\uD" in text:
            # A half of a pair that was written as an escape. Whole pairs are one character by now.
            value = _loads(_SURROGATE.sub("\ufffd", json.dumps(value, ensure_ascii=False)))
    except (ValueError, RecursionError) as cause:
        raise Corrupt("the file is no JSON") from cause
    return value


def _loads(text: str) -> JSON:
    return json.loads(text, parse_constant=_refuse, parse_float=_finite)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise ValueError("a number is too large")
    return number


_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must not hold us up
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ENDING = ".json"
_NAME_BYTES_MAX = 230  # of 255, so that what is set aside has a name as well
_TEMPORARY = re.compile(r"\.limpet-[0-9a-f]{16}\.tmp|.*\.json\.tmp", re.S)
_ASIDE = re.compile(r".*\.json\.corrupt-[0-9]+", re.S)

Checkpoints: TypeAlias = list[Checkpoint]


class GoRunStore:
    """The current checkpoint of each run, as the file `<run_id>.json` that the Go store keeps.

    Both may use the folder at the same time, in any number of processes. A file is what Go would
    write, byte for byte, except that fields which Go does not know are kept, behind the others. It
    can be read by its owner alone. The name of a file is the id of its run; if another stands
    inside, `check` tells. The folder is created at once, with those above it.

    A save never takes away what cannot be read: a damaged file stays beside the new one, as
    `<run_id>.json.corrupt-1`.
    """

    def __init__(self, dir: str | os.PathLike[str]) -> None:
        self._dir = folder_of(dir)
        make_folder(self._dir)

    def save(self, checkpoint: Checkpoint | Mapping[str, JSON]) -> None:
        """Make a checkpoint durable; it takes the place of the run's last one, as one step.

        An empty `created_at` becomes the present.

        Raises:
            InvalidInput: it is no checkpoint, something in it is not JSON (the message has its
                path), or its run_id is not one plain name of a file.
        """
        found = taken(checkpoint)
        path = self._path(found.run_id)
        data = encode(found)
        with self._named(path):
            self._set_aside(path)
            temporary = os.path.join(self._dir, f".limpet-{draw().nonce}.tmp")
            handle = os.open(temporary, _WRITE, 0o600)
            try:
                with open(handle, "wb", buffering=0) as file:
                    _write_all(file.fileno(), data)
                    flush(file.fileno())
                os.rename(temporary, path)  # this line is the commit
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
        self._flush(path)

    def load(self, run_id: str) -> Checkpoint:
        """Return the checkpoint of a run, with its messages exactly as they stand in the file.

        Raises:
            NotFound: there is no such file.
            Corrupt: it holds no checkpoint.
        """
        path = self._path(run_id)
        with self._opened(path) as handle:
            if handle is None:
                raise NotFound(f"the run has no checkpoint. run_id=`{run_id}`")
            data = _read_all(handle)
        try:
            return replace(decode(data), run_id=run_id)
        except Corrupt as cause:
            raise Corrupt(f"{cause}. path=`{path}`") from cause

    def list(self) -> Checkpoints:
        """Return the checkpoints of all runs, newest first by their `created_at`.

        Of equal moments the last saved comes first, then they go by run_id. Of a file at most 16 KB
        are read, from its two ends, unless somebody else has laid it out, or it has a very long
        task name or long fields that Go does not know: `messages` is None,
        `system_prompt` empty and `extra` too. What cannot be read is left out; `check` tells.
        """
        found: list[tuple[Checkpoint, int]] = []
        for run_id in self._run_ids():
            with suppress(LimpetError), self._opened(self._path(run_id)) as handle:
                if handle is not None:
                    known = replace(_glance(handle), run_id=run_id)
                    found.append((known, os.fstat(handle).st_mtime_ns))
        return newest_first(found)

    def delete(self, run_id: str) -> None:
        """Remove the checkpoint of a run. Idempotent."""
        path = self._path(run_id)
        with self._named(path), suppress(FileNotFoundError, IsADirectoryError):
            os.unlink(path)
        self._flush(path)

    def has_checkpoint(self, run_id: str) -> bool:
        """Tell whether a run has a file that can be opened; `load` tells whether it is damaged."""
        path = self._path(run_id)
        try:
            with self._opened(path) as handle:
                return handle is not None
        except Unavailable:
            return False

    def check(self) -> Iterator[Finding]:
        """Read all files and yield what is wrong with them. Changes nothing.

        The codes: `checkpoint_damaged`, `checkpoint_unreadable` (errors); `checkpoint_set_aside`,
        `run_id_differs`, `name_wrong` (warnings); `temporary_left` (information).
        """
        for name in self._names():
            path = os.path.join(self._dir, name)
            run_id = name.removesuffix(_ENDING)
            if _TEMPORARY.fullmatch(name):
                fact = "a temporary file of a save that is under way or never ended"
                yield finding("info", "temporary_left", fact, path=path)
            elif _ASIDE.fullmatch(name):
                fact = "a damaged file that a save has set aside"
                yield finding("warning", "checkpoint_set_aside", fact, path=path)
            elif name.endswith(_ENDING) and not is_name(run_id):
                fact = "the name of a file is not that of a run"
                yield finding("warning", "name_wrong", fact, path=path)
            elif name.endswith(_ENDING):
                yield from self._judged(run_id, path)

    def _judged(self, run_id: str, path: str) -> Iterator[Finding]:
        scope = scope_of(run_id)
        try:
            with self._opened(path) as handle:
                inside = None if handle is None else decode(_read_all(handle)).run_id
        except Corrupt as damage:
            yield finding("error", "checkpoint_damaged", str(damage), scope=scope, path=path)
        except LimpetError as error:
            yield finding("error", "checkpoint_unreadable", str(error), scope=scope)
        else:
            if inside is not None and inside != run_id:
                fact = "the file names another run than its own name does"
                yield finding("warning", "run_id_differs", fact, scope=scope, found=inside)

    # Names

    def _path(self, run_id: str) -> str:
        if not is_name(run_id):
            name = ascii(run_id[:80]) if isinstance(run_id, str) else type(run_id).__name__
            raise InvalidInput(f"run_id must be one plain name of a file. run_id=`{name}`")
        return os.path.join(self._dir, run_id + _ENDING)

    def _names(self) -> Iterator[str]:
        with self._named(self._dir):
            names = os.listdir(self._dir)
        yield from sorted(names)

    def _run_ids(self) -> Iterator[str]:
        for name in self._names():
            if name.endswith(_ENDING) and is_name(name.removesuffix(_ENDING)):
                yield name.removesuffix(_ENDING)

    # Files

    @contextmanager
    def _named(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as cause:
            raise failure(cause, path) from cause

    @contextmanager
    def _opened(self, path: str) -> Iterator[int | None]:
        """Open a file to read; None if there is none."""
        with self._named(path):
            try:
                handle = os.open(path, _READ)
            except FileNotFoundError:
                yield None
                return
            try:
                yield handle if stat.S_ISREG(os.fstat(handle).st_mode) else None
            finally:
                os.close(handle)

    def _flush(self, path: str) -> None:
        """Make the names in the folder durable: a power cut could take back the last rename."""
        try:
            handle = os.open(self._dir, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
            try:
                flush(handle)
            finally:
                os.close(handle)
        except OSError as cause:
            raise failure(cause, path, outcome_known=False) from cause

    def _set_aside(self, path: str) -> None:
        """Give what cannot be read a second name before it is replaced.

        A link, not a rename: the first name always leads to something, and if somebody else has
        replaced the file meanwhile, only the link is taken back.
        """
        with self._opened(path) as handle:
            if handle is None or _is_readable(handle):
                return
            damaged = os.fstat(handle)
            for number in count(1):
                aside = f"{path}.corrupt-{number}"
                try:
                    os.link(path, aside)
                except FileNotFoundError:
                    return  # somebody deleted it
                except FileExistsError:
                    if os.path.samestat(os.stat(aside), damaged):
                        return  # somebody was faster
                else:
                    if not os.path.samestat(os.stat(aside), damaged):
                        os.unlink(aside)
                    return


def is_name(run_id: object) -> bool:
    """Tell whether an id is one plain name of a file, which leads nowhere else."""
    try:
        plain = limits.check_id("run_id", run_id)
    except InvalidInput:
        return False
    return (
        plain not in (".", "..")
        and "/" not in plain
        and "\\" not in plain
        and len(plain.encode()) <= _NAME_BYTES_MAX
    )


def _glance(handle: int) -> Checkpoint:
    """Return the metadata of an opened file, or raise Corrupt.

    The ends do not tell where somebody else has laid it out. It is then read whole: a listing that
    leaves out what can be loaded would be worse.
    """
    size = os.fstat(handle).st_size
    if size > ENDS_BYTES:
        head = os.pread(handle, HEAD_BYTES, 0)
        tail = os.pread(handle, TAIL_BYTES, size - TAIL_BYTES)
        known = decode_ends(head, tail)
        if known is not None:
            return known
    return bare(decode(_read_all(handle)))


def _is_readable(handle: int) -> bool:
    try:
        prove(_read_all(handle))
    except Corrupt:
        return False
    return True


def _read_all(handle: int) -> bytes:
    with open(handle, "rb", buffering=0, closefd=False) as file:
        return file.readall()


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
