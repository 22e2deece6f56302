"""The engine over buckets: one head for each scope, and segments of its history."""
