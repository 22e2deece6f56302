"""What keeping every step costs: Holdfast beside its peers and beside the bare floor."""
