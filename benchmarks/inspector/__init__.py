"""The pages of the inspector, on a store with a million snapshots."""
