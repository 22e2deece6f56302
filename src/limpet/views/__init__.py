"""Pure views: what people are shown of a store, whether in a terminal or in a browser.

Nothing in here reads a store or draws. The functions take records and give text, rows and trees.
"""
