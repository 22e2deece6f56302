"""Fork and restore, each with a preview, and what `prune` would delete."""
