"""Keys and bytes with compare-and-set: what directories and object stores have in common."""
