"""Limpet under each framework, against the framework's own store."""
