"""Search in a session, or in the whole store."""
