"""The store over HTTP, against the same engine called directly and against a bare handler."""
