"""LangGraph's own savers and `LimpetSaver`, in the same graph."""
