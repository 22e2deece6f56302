"""What is known about goals that are missed: stands below the table while a row says no.

The key is the beginning of the row's text.
"""

TRIED: dict[str, str] = {}
