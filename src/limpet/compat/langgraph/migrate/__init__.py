"""Import from LangGraph's own savers."""
