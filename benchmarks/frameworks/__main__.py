"""Measure the integrations: `python -m benchmarks.frameworks [--quick] [--write] [NAME ...]`.

Prints a page of tables; goals that are missed are marked in it. Fails only if something crashes.
"""

from benchmarks.frameworks.run import main

if __name__ == "__main__":
    main()
