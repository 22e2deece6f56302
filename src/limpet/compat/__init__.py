"""The interfaces that people already program against, each over one core on every engine."""
