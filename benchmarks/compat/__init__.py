"""What the foreign interfaces cost over Limpet, and what the tools that they come from cost."""
