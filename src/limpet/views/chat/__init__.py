"""A state as a chat."""
