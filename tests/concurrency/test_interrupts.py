"""An interrupt (Ctrl-C) at any moment of a call leaves nothing locked."""

import subprocess
import sys
import textwrap
from pathlib import Path

SCRIPT = textwrap.dedent(
    """
    import os, random, signal, sys, threading
    import limpet

    def interrupt(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    chance = random.Random(7)
    store = limpet.open(sys.argv[1], synchronous="off")
    scope = store.scope("s")
    scope.save({"n": 0}, id="kept")
    ended = threading.Event()

    def write_beside():
        while not ended.is_set():
            store.scope("beside").save({"n": 0}, keep=False)

    beside = threading.Thread(target=write_beside)
    interrupts = 0
    while interrupts < 300:
        if interrupts == 150 and not beside.is_alive():
            beside.start()  # from here on, most of the time goes into waiting for it
        try:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(20e-6, 900e-6))
            while True:
                scope.save({"n": interrupts}, keep=False)
                scope.load()
        except KeyboardInterrupt:
            interrupts += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    ended.set()
    beside.join(20)
    assert not beside.is_alive(), "another thread waits for good"
    saved = []
    other = threading.Thread(target=lambda: saved.append(scope.save({"n": "after"})))
    other.start()
    other.join(20)
    assert saved, "another thread cannot save any more"
    child = os.fork()
    if not child:
        signal.alarm(20)
        scope.save({"n": "in child"})
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "a child cannot save"
    assert scope.load().state == {"n": "in child"}
    assert scope.load("kept").state == {"n": 0}
    store.close()
    print("done")
    """
)


def test_an_interrupt_leaves_nothing_locked(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, f"sqlite:///{tmp_path}/x.db"],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (ended.stdout, ended.returncode) == ("done\n", 0), ended.stderr
