"""The differences between what the Strands SDKs write."""
