"""What Holdfast costs, measured against the bare storage beneath it."""
