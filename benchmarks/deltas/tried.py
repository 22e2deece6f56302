"""What was tried where a goal is missed: stands below the table of goals while the row says no.

The key is the beginning of the row's text.
"""

TRIED: dict[str, str] = {
    "`load` of the head, newly opened, smaller states": (
        "`many_edits` changes about eight places in each save, so that its head is made of a whole"
        " body and up to ten packs of some 270 steps each, at 0.6 µs a step in Python. Tried:"
        " pieces joined once at the end (slower with so many), a `bytearray`, slices of `bytes`"
        " instead of views (no faster). Storing such states whole more often would reach this goal"
        " and miss the one for the file, of which this trace uses the most."
    ),
    "`save` at turn 500": (
        "Done: types are proven level by level instead of by `marshal` (0.3 ms less at 1 MB), one"
        " query reads all that a commit needs, states are compared without copies, what stays only"
        " for a while is compressed lightly. Of what is left, encoding is the largest part."
    ),
}
