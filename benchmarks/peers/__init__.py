"""Other stores of agents' state, each driven by a process of its own, on the same conversation."""
