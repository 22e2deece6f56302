"""Measure the server: `python -m benchmarks.http [--quick] [--write]`.

Prints a page of tables; goals that are missed are marked in it. Fails only if something crashes.
"""

if __name__ == "__main__":
    from benchmarks.http.run import main

    main()
