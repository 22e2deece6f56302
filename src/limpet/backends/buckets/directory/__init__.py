"""A bucket in a directory of a file system."""
