"""What the foreign interfaces cost over Holdfast, and what the tools that they come from cost."""
