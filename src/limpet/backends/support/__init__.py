"""What several engines share: polling, bounded caches, queues."""
