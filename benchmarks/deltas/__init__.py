"""What keeping every step costs: Limpet beside its peers and beside the bare floor."""
