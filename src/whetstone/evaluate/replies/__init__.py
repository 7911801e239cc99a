"""Writers of the replies of an evaluation: the embedded engine, or an OpenAI-compatible endpoint."""
