"""What is known about goals that are missed: stands below the table while a row says no.

The key is the beginning of the row's text.
"""

TRIED: dict[str, str] = {
    "throughput of `save`": (
        "Throughput: the threads of one process share Python's lock, so what bounds them is the CPU"
        " of a call. A bare INSERT is one call of the driver. A save also encodes the state, proves"
        " its types, compares it with the last one, compresses what changed, makes two checksums"
        " and hands thirty values to the driver instead of two; one in 33 closes a group of deltas."
        " Done: a writer that is alone saves in one statement. It pays where states are large: the"
        " server is sent what changed, and the bare side sends everything."
    ),
    "all tables after": (
        "Disk: an empty store takes 0.2 MB, a page for each of its indexes, whatever comes later."
        " And each delta is written, and written anew in its final form when its group is closed;"
        " the server uses that space again only after its own VACUUM, for which a conversation of"
        " seconds is too short. The row of several sessions shows what it comes to when there is"
        " time for that."
    ),
    "round trips of": (
        "Round trips: a save that closes a group of deltas, one in 33, first reads the group and"
        " who builds on it."
    ),
}
