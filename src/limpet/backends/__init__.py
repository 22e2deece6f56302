"""Floor 1: the engines. They never import each other."""
