"""Clients for model servers over HTTP: their endpoints, retries, timeouts and streams."""
