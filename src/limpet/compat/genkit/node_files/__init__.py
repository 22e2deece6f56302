"""The files that Genkit's own FileSessionStore for Node writes."""
