"""TableImport from LangGraph's own savers."""
