"""Many processes that open a store at the same moment: `pg_openers.py URL COUNT OPTIONS`.

Each is a fork of this one, which has not touched the store itself. They begin when a pipe is
closed, save one snapshot each, and the first that fails is shown.
"""

import json
import os
import sys
import traceback

import limpet
import limpet.backends.postgres.storage  # imported once, not by each


def opener(number: int, begin: tuple[int, int]) -> None:
    url, options = sys.argv[1], json.loads(sys.argv[3])
    os.close(begin[1])
    os.read(begin[0], 1)
    with limpet.open(url, **options) as store:
        store.scope(f"s{number}").save(number)
        store.scope("shared").set_note("count", lambda n: (n or 0) + 1)


def main() -> None:
    begin = os.pipe()
    children = []
    for number in range(int(sys.argv[2])):
        child = os.fork()
        if not child:
            try:
                opener(number, begin)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    os.close(begin[1])
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sys.exit(max(ended))


if __name__ == "__main__":
    main()
