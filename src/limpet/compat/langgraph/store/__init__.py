"""`LimpetStore`: LangGraph's long-term memory in an opened store."""
