"""The cost of keeping every step: Limpet against its peers and a lower bound."""
