"""How soon a watcher in another process hears of a save, and what it costs while it hears none."""
