"""Measure watching: `python -m benchmarks.watching [--quick] [--write]`.

Prints a page of tables; goals that are missed are marked in it. Fails only if something crashes.
"""

if __name__ == "__main__":
    # Here, since the processes that are started read this file again.
    from benchmarks.watching.run import main

    main()
