"""The verb `demo`. Imports nothing, so that `demo.agent` can run as a process of its own."""
