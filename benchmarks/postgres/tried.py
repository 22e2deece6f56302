"""What is known about goals that are missed, shown below the table if a row says no.

The key is the beginning of the row's text.
"""

TRIED: dict[str, str] = {
    "throughput of `save`": (
        "Throughput: the threads of one process share the GIL, so the CPU time of a call is the"
        " limit. A bare INSERT is one call of the driver. A save also encodes the state, verifies"
        " its types, compares it with the last one, compresses the difference, computes two"
        " checksums and passes thirty values to the driver instead of two; one in 33 closes a group"
        " of deltas. Done: a writer that is alone saves in one statement. It pays where states are"
        " large: Limpet sends the difference, the bare side sends everything."
    ),
    "all tables after": (
        "Disk: an empty store takes 0.2 MB, a page for each of its indexes. And each delta is"
        " written, and rewritten in its final form when its group is closed; the server reuses that"
        " space only after a VACUUM, for which a conversation of seconds is too short. The row of"
        " several sessions shows the size with enough time for that."
    ),
    "round trips of": (
        "Round trips: a save that closes a group of deltas, one in 33, first reads the group and"
        " the states that depend on it."
    ),
}
