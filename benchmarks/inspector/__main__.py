"""Measure the pages: `python -m benchmarks.inspector [--quick] [--write]`.

Prints a page of tables; goals that are missed are marked in it. Fails only if something crashes.
"""

if __name__ == "__main__":
    from benchmarks.inspector.run import main

    main()
