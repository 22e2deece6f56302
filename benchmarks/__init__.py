"""What Limpet costs, measured against the bare storage."""
