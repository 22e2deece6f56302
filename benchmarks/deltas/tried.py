"""What was tried where a goal is missed: stands below the table of goals while the row says no.

The key is the beginning of the row's text.
"""

TRIED: dict[str, str] = {}
