"""Measure the foreign interfaces: `python -m benchmarks.compat [--quick] [--write]`.

Prints a page of tables; goals that are missed are marked in it. Fails only if something crashes.
"""

from benchmarks.compat.run import main

if __name__ == "__main__":
    main()
