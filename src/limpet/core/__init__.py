"""Pure decisions and encodings: no I/O, clock, randomness, threads or environment."""
