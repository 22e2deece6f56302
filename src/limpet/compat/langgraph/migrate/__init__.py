"""Threads from LangGraph's own savers."""
