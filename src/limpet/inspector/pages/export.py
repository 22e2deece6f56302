"""Downloads of what a page shows."""
