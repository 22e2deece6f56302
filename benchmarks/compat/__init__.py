"""The cost of the integrations over Limpet, and of the tools that they come from."""
