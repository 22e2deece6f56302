"""LangGraph's own savers and ours, below the same graph."""
