"""Measure the checkpointer: `python -m benchmarks.langgraph [--quick] [--write]`.

Prints a page of tables; goals that are missed are marked in it. Fails only if something crashes.
"""

from benchmarks.langgraph.run import main

if __name__ == "__main__":
    main()
