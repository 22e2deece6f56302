"""What Limpet on a PostgreSQL server costs: against bare inserts, LangGraph and the network."""
