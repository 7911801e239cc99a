"""Servers of models over HTTP: what they are, and how requests to them survive their bad hours."""
