"""What the engine makes of answers: long lists, and errors in the middle of one."""

from pathlib import Path

import pytest

import limpet
from limpet import Corrupt, opening
from limpet.protocol import Backend
from tests.servers.http import Http

PAGE = 16  # states that the server reads at once


def test_an_error_in_the_middle_of_many_states_is_raised(http: Http, tmp_path: Path) -> None:
    path = tmp_path / "limpet.db"
    names = [f"state-{number:04}" for number in range(3 * PAGE)]
    with limpet.open(f"sqlite:///{path}") as store:
        for name in names:
            store.scope("s").save({"text": f"the text of {name}"}, id=name)
    damaged = path.read_bytes().replace(b"the text of state-0040", b"the text of state-004!")
    path.write_bytes(damaged)
    url = http.mount(f"sqlite:///{path}")
    backend = opening.open_backend(url)
    scope = limpet.ScopeKey("s")
    assert [info.id for info, _ in backend.read_snapshots(scope, names[:32])] == names[:32]
    for some in (names, names[40:]):
        with pytest.raises(Corrupt) as caught:
            backend.read_snapshots(scope, some)
        assert caught.value.id in (None, "state-0040")
    backend.close()
    http.unmount(url)


def test_a_list_may_be_longer_than_a_page_of_the_server(http: Http, tmp_path: Path) -> None:
    url = http.mount(f"sqlite:///{tmp_path / 'limpet.db'}?synchronous=off")
    with limpet.open(url) as store:
        scope, ids = store.scope("s"), [f"{number:04}" for number in range(300)]
        for name in ids:
            scope.set_note("n", 1, on=name)
        owners = [*reversed(ids), "none"]

        def listed(backend: Backend) -> list[str | None]:
            notes = backend.list_notes(scope.key, on=owners, name=None, after="", limit=299)
            return [note.snapshot_id for note in notes]

        assert store.driver.run(listed) == ids[:0:-1]
        assert list(scope.noted_ids()) == ids
        assert [note.snapshot_id for note in scope.notes(on=owners)] == ids[::-1]
    http.unmount(url)
