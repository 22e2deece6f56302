"""The delta codec."""
