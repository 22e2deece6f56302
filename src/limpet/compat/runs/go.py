"""The folder of the Go store, read and written beside a Go process.

A file is written under a temporary name, synced, and moved into place, so that no reader in either
language sees a part of it; then the folder is synced. Temporary names are drawn for each save, so
that savers of one run never meet in one.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from typing import TypeAlias

from limpet.backends._bucket._folders import failure, flush
from limpet.compat.place import folder_of
from limpet.compat.runs import go_format
from limpet.compat.runs.checkpoint import Checkpoint, bare, newest_first, taken
from limpet.compat.runs.store import make_folder
from limpet.core import limits
from limpet.core.findings import finding
from limpet.errors import Corrupt, InvalidInput, LimpetError, NotFound, Unavailable
from limpet.model import JSON, Finding
from limpet.opening import draw
from limpet.runs.verbs import scope_of

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
        data = go_format.encode(found)
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
            return replace(go_format.decode(data), run_id=run_id)
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
                inside = None if handle is None else go_format.decode(_read_all(handle)).run_id
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
    if size > go_format.ENDS_BYTES:
        head = os.pread(handle, go_format.HEAD_BYTES, 0)
        tail = os.pread(handle, go_format.TAIL_BYTES, size - go_format.TAIL_BYTES)
        known = go_format.decode_ends(head, tail)
        if known is not None:
            return known
    return bare(go_format.decode(_read_all(handle)))


def _is_readable(handle: int) -> bool:
    try:
        go_format.prove(_read_all(handle))
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
