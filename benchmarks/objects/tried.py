"""What is known about goals that are missed, shown below the table if a row says no.

The key is the beginning of the row's text.
"""

TRIED: dict[str, str] = {
    "directory: kept `save` of 1 MB, `sync=false`": (
        "1 MB with `sync=false`: besides the two writes, which are all that the other side does, a"
        " save encodes the state, checks its types, joins the document, and reads the old head"
        " twice to compare it by its hash, before the write and under the lock. A durable save"
        " waits for the disk much longer than all of this takes."
    ),
}
