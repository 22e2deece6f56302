"""Floor 0: pure decisions. No I/O, clock, randomness, threads or environment in here."""
