"""What was tried for the missed goals, shown below the table if a row says no.

The key is the beginning of the row's text.
"""

TRIED: dict[str, str] = {
    "`load` of the head, newly opened, smaller states": (
        "`many_edits` changes about eight places in each save, so that its head consists of a whole"
        " body and up to ten packs of some 270 steps each, at 0.6 µs a step in Python. Tried:"
        " joining the parts once at the end (slower with so many), a `bytearray`, slices of `bytes`"
        " instead of views (no faster). Storing such states whole more often would reach this goal"
        " and miss the one for the file, of which this trace uses the most."
    ),
    "`save` at turn 500": (
        "Done: types are verified level by level instead of by `marshal` (0.3 ms less at 1 MB), one"
        " query reads everything that a commit needs, states are compared without copies,"
        " short-lived data is compressed lightly. Of the rest, encoding is the largest part."
    ),
}
