"""A package, so that the browser ends with its last test: see `conftest.py`."""
