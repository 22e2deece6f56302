"""What people are shown of a store, in a terminal or a browser: text, rows and trees.

`refs` and `overview` read a store through its API; the rest are pure functions.
"""
