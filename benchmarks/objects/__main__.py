"""Measure folders and S3: `python -m benchmarks.objects [--quick] [--write]`.

Prints a page of tables; goals that are missed are marked in it. Fails only if something crashes.
"""

if __name__ == "__main__":
    # Here, since the processes that are started read this file again.
    from benchmarks.objects.run import main

    main()
