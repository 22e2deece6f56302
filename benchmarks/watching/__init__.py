"""How soon a watcher in another process sees a save, and what an idle watcher costs."""
