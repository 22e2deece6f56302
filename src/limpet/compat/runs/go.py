"""The folder of the Go store, shared with Go processes, and the format of its files.

The format is that of Go's `encoding/json`, which indents by two spaces: a line that begins with two
spaces and a quote is a field of the whole document, because line breaks inside texts are escaped.
"""

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from typing import TypeAlias

import orjson

from limpet.api.integrations import NOTHING, TEMPORARY, failure, finding
from limpet.compat.json_files import (
    check_size,
    dump_indented,
    is_file_name,
    links_below,
    load_strict,
)
from limpet.compat.runs.records import (
    ZERO_TIME,
    Checkpoint,
    field_of,
    newest_first,
    scope_of,
    with_time,
    without_state,
)
from limpet.compat.runs.store import RunStore, StoreAddress, make_folder
from limpet.compat.wire import Tally, Transfer, existing_folder, folder_of, shown
from limpet.errors import Corrupt, InvalidInput, LimpetError, NotFound, Unavailable
from limpet.model import ANY, JSON, Finding
from limpet.opening import open_folder

Checkpoints: TypeAlias = list[Checkpoint]

# What a listing reads of a file: run_id, task_name and iteration; tokens, created_at and a few
# extra fields.
HEAD_BYTES = 8 * 1024
TAIL_BYTES = 8 * 1024

# A link may lead out of the folder, and opening a pipe must not block.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_ENDING = ".json"
_NAME_BYTES_MAX = 230  # of 255, so that a damaged file can be renamed
_ASIDE = re.compile(r".*\.json\.corrupt-[0-9]+", re.S)

_TEXT = rb'"(?:[^"\\\n]|\\.)*+"'
_HEAD = re.compile(
    rb'\{\n  "run_id": %b,\n  "task_name": (%b),\n  "iteration": (-?\d{1,19}),\n  "messages": '
    % (_TEXT, _TEXT)
)
_TAIL = re.compile(
    rb'\n  "input_tokens": (-?\d{1,19}),\n  "output_tokens": (-?\d{1,19}),\n  "created_at": (%b)'
    rb'(?:\n\}\Z|,\n  "[\s\S]*\n\}\Z)' % _TEXT
)
# Go also escapes these, so that JSON can be embedded in HTML and JavaScript.
_ESCAPES = [
    (character.encode(), f"\\u{ord(character):04x}".encode())
    for character in ("<", ">", "&", "\u2028", "\u2029")
]
_SURROGATE = re.compile("[\ud800-\udfff]")
_TOO_FINE = re.compile(r"(\.\d{9})\d+")


def encode(checkpoint: Checkpoint) -> bytes:
    """Return the file of a checkpoint, byte for byte as Go writes it."""
    data = dump_indented(checkpoint.to_json(), what="checkpoint")
    for character, escape in _ESCAPES:
        data = data.replace(character, escape)
    return data


def decode(data: bytes) -> Checkpoint:
    """Return the checkpoint in a file.

    As in Go names are case-insensitive, a missing or null field is zero, and bytes that are not
    UTF-8 are read as U+FFFD. Messages are kept exactly.

    Raises:
        Corrupt: it is not a checkpoint: empty, cut short, not an object, or a value of another
            type.
    """
    value = _value(data)
    if not isinstance(value, dict):
        raise Corrupt("the file is not a checkpoint: its JSON is not an object")
    return _checkpoint(value)


def check_data(data: bytes) -> None:
    """Raise Corrupt if a file is not a checkpoint; mostly ten times faster than `decode`."""
    try:
        found = orjson.loads(data)
    except ValueError:  # orjson is stricter than Go
        found = None
    if isinstance(found, dict):
        _checkpoint(found)
    else:
        decode(data)


def decode_ends(head: bytes, tail: bytes) -> Checkpoint | None:
    """Return the fields at the two ends of a file, without its messages and its prompt.

    None if it is not formatted as by Go, is cut short, or has longer fields than were read.
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
        raise Corrupt(f"the file is not a checkpoint: {cause}") from cause


def _moment(value: JSON) -> JSON:
    if value == "":
        raise Corrupt("the file is not a checkpoint: created_at must be an RFC 3339 time")
    # Go reads any number of digits, and uses nine.
    return _TOO_FINE.sub(r"\1", value) if isinstance(value, str) else value


def _value(data: bytes) -> JSON:
    # Each byte that is not UTF-8 becomes one surrogate here, and one U+FFFD in Go.
    text = _SURROGATE.sub("\ufffd", data.decode("utf-8", "surrogateescape"))
    try:
        value = load_strict(text)
        if "\\ud" in text or "\\uD" in text:
            # An escaped half of a pair. Whole pairs have become one character.
            value = load_strict(_SURROGATE.sub("\ufffd", json.dumps(value, ensure_ascii=False)))
    except (ValueError, RecursionError) as cause:
        raise Corrupt("the file is not JSON") from cause
    return value


class GoRunStore:
    """The current checkpoint of each run, as the file `<run_id>.json` of the Go store.

    Both may use the folder at the same time, in any number of processes. A file is what Go would
    write, byte for byte, except that fields unknown to Go are kept after the others. Only its owner
    can read it. The file name is the id of the run; `check` reports another id inside. The folder
    is created at once, with its parents.

    A save never overwrites a file that cannot be read: it is renamed to `<run_id>.json.corrupt-1`.
    """

    def __init__(self, dir: str | os.PathLike[str]) -> None:
        self._dir = folder_of(dir)
        make_folder(self._dir)
        self._files = open_folder(self._dir)

    def save(self, checkpoint: Checkpoint | Mapping[str, JSON]) -> None:
        """Save a checkpoint, durably; it replaces the run's last one, as one step.

        An empty `created_at` becomes the current time.

        Raises:
            InvalidInput: it is not a checkpoint, a value is not JSON (the message has its path), or
                its run_id cannot be a file name.
        """
        found = with_time(checkpoint)
        path = self._path(found.run_id)
        data = encode(found)
        with self._os_errors(path):
            self._set_aside(path)
        self._unlink(path)
        self._files.put(os.path.basename(path), data, expect=ANY)

    def load(self, run_id: str) -> Checkpoint:
        """Return the checkpoint of a run, with its messages exactly as in the file.

        Raises:
            NotFound: there is no such file.
            Corrupt: it is not a checkpoint.
        """
        path = self._path(run_id)
        try:
            with self._opened(path) as handle:
                if handle is None:
                    raise NotFound(f"the run has no checkpoint. run_id=`{run_id}`")
                data = _read_all(handle)
            return replace(decode(data), run_id=run_id)
        except Corrupt as cause:
            raise Corrupt(f"{cause}. path=`{path}`") from cause

    def list(self) -> Checkpoints:
        """Return the checkpoints of all runs, newest first by their `created_at`.

        Equal times are ordered by the last save, then by run_id. At most 16 KB of a file are read,
        from its two ends, unless it is formatted otherwise, or has a very long task name or long
        fields unknown to Go. `messages` is None, `system_prompt` and `extra` are empty. Files that
        cannot be read are left out; `check` reports them.
        """
        found: list[tuple[Checkpoint, int]] = []
        for run_id in self._run_ids():
            with suppress(LimpetError), self._opened(self._path(run_id)) as handle:
                if handle is not None:
                    known = replace(_read_metadata(handle), run_id=run_id)
                    found.append((known, os.fstat(handle).st_mtime_ns))
        return newest_first(found)

    def delete(self, run_id: str) -> None:
        """Delete the checkpoint of a run. Idempotent."""
        path = self._path(run_id)
        self._unlink(path)
        self._files.delete([os.path.basename(path)])

    def has_checkpoint(self, run_id: str) -> bool:
        """Return whether a run has a file that can be opened, also a damaged one."""
        path = self._path(run_id)
        try:
            with self._opened(path) as handle:
                return handle is not None
        except Unavailable:
            return False

    def check(self) -> Iterator[Finding]:
        """Read all files and yield what is wrong with them. Changes nothing.

        The codes: `checkpoint_damaged`, `checkpoint_unreadable`, `link_skipped` (errors);
        `checkpoint_set_aside`, `run_id_differs`, `name_wrong` (warnings); `temporary_left`
        (information).
        """
        yield from links_below(self._dir)
        for name in self._names():
            path = os.path.join(self._dir, name)
            run_id = name.removesuffix(_ENDING)
            if name.startswith(TEMPORARY) or name.endswith(".json.tmp"):
                fact = "a temporary file of a save that has not finished"
                yield finding("info", "temporary_left", fact, path=path)
            elif _ASIDE.fullmatch(name):
                fact = "a damaged file that a save has renamed"
                yield finding("warning", "checkpoint_set_aside", fact, path=path)
            elif name.endswith(_ENDING) and not is_name(run_id):
                fact = "the file name is not that of a run"
                yield finding("warning", "name_wrong", fact, path=path)
            elif name.endswith(_ENDING):
                yield from self._check_file(run_id, path)

    def _check_file(self, run_id: str, path: str) -> Iterator[Finding]:
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
                fact = "the run_id in the file differs from the file name"
                yield finding("warning", "run_id_differs", fact, scope=scope, found=inside)

    # Names

    def _path(self, run_id: str) -> str:
        if not is_name(run_id):
            raise InvalidInput(f"run_id must be usable as a file name. run_id=`{shown(run_id)}`")
        return os.path.join(self._dir, run_id + _ENDING)

    def _names(self) -> Iterator[str]:
        with self._os_errors(self._dir):
            names = os.listdir(self._dir)
        yield from sorted(names)

    def _run_ids(self) -> Iterator[str]:
        for name in self._names():
            if name.endswith(_ENDING) and is_name(name.removesuffix(_ENDING)):
                yield name.removesuffix(_ENDING)

    # Files

    @contextmanager
    def _os_errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as cause:
            raise failure(cause, path) from cause

    @contextmanager
    def _opened(self, path: str) -> Iterator[int | None]:
        """Open a file for reading; None if there is none, or a link."""
        with self._os_errors(path):
            try:
                handle = os.open(path, _READ)
            except OSError as cause:
                if cause.errno not in NOTHING:
                    raise
                yield None
                return
            try:
                yield handle if stat.S_ISREG(os.fstat(handle).st_mode) else None
            finally:
                os.close(handle)

    def _unlink(self, path: str) -> None:
        """Remove a link: what it leads to stays as it is."""
        with self._os_errors(path), suppress(FileNotFoundError):
            if os.path.islink(path):
                os.unlink(path)

    def _set_aside(self, path: str) -> None:
        """Give a file that cannot be read a second name before it is replaced.

        By a link, not a rename: the first name always exists, and if another process has replaced
        the file meanwhile, only the link is removed.
        """
        with self._opened(path) as handle:
            if handle is None:
                return
            with suppress(Corrupt):
                check_data(_read_all(handle))
                return
            damaged = os.fstat(handle)
            for number in count(1):
                aside = f"{path}.corrupt-{number}"
                try:
                    os.link(path, aside)
                except FileNotFoundError:
                    return  # deleted meanwhile
                except FileExistsError:
                    if os.path.samestat(os.stat(aside), damaged):
                        return  # another process was faster
                else:
                    if not os.path.samestat(os.stat(aside), damaged):
                        os.unlink(aside)
                    return


def is_name(run_id: object) -> bool:
    is_file = is_file_name(run_id, bytes_max=_NAME_BYTES_MAX)
    return is_file and not str(run_id).startswith(TEMPORARY)


def _read_metadata(handle: int) -> Checkpoint:
    """Return the metadata of an opened file, or raise Corrupt.

    A file that is formatted otherwise is read whole: it can be loaded, so it must be listed.
    """
    size = os.fstat(handle).st_size
    if size > HEAD_BYTES + TAIL_BYTES:
        head = os.pread(handle, HEAD_BYTES, 0)
        tail = os.pread(handle, TAIL_BYTES, size - TAIL_BYTES)
        known = decode_ends(head, tail)
        if known is not None:
            return known
    return without_state(decode(_read_all(handle)))


def _read_all(handle: int) -> bytes:
    check_size(os.fstat(handle).st_size)
    with open(handle, "rb", buffering=0, closefd=False) as file:
        return file.readall()


# Imports and exports. One checkpoint is in memory at a time.


def import_runs(store: StoreAddress, dir: str | os.PathLike[str]) -> Transfer:
    """Import every checkpoint of a Go store's folder, each under the name of its file.

    It replaces the checkpoint of the run in the store. May be repeated; counts what is new. A file
    that cannot be read, or that the store refuses, is skipped and reported, and so is a link.

    Raises:
        NotFound: there is no such folder.
    """
    folder, tally = existing_folder(dir), Tally()
    tally.skipped += links_below(folder)
    with RunStore(store) as target:
        return _carried_over(GoRunStore(folder), target, tally, LimpetError)


def export_runs(store: StoreAddress, dir: str | os.PathLike[str]) -> Transfer:
    """Export the checkpoint of every run to a Go store's folder, which may be new.

    It replaces the run's file. May be repeated. A run that cannot be read, or whose id cannot be a
    file name, is skipped and reported.
    """
    with RunStore(store) as source:
        return _carried_over(source, GoRunStore(dir), Tally(), Corrupt, InvalidInput)


def _carried_over(
    source: GoRunStore | RunStore,
    target: GoRunStore | RunStore,
    tally: Tally,
    *unreadable: type[LimpetError],
) -> Transfer:
    for run_id in source._run_ids():
        found, scope = None, scope_of(run_id)
        # NotFound: it has no head, or was deleted meanwhile.
        with tally.skipping("run_skipped", *unreadable, scope=scope), suppress(NotFound):
            found = source.load(run_id)
        present = None
        if isinstance(target, RunStore):  # every save there is a new one
            with suppress(NotFound, Corrupt):
                present = target.load(run_id)
        if found is not None and found == present:
            tally.unchanged += 1
        elif found is not None:
            with tally.skipping("run_skipped", InvalidInput, scope=scope):
                target.save(found)
                tally.count += 1
    return tally.result()
