"""The flow behind HTTP, and its client."""
