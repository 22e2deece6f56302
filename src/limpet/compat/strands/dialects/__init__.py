"""Translation between the snapshot formats of the Strands SDKs for Python and TypeScript."""
