"""The parts of the engine over buckets: `objects.py` puts them together."""
