"""The storages of the engine, and the engine over HTTP. They never import each other."""
