"""Workspaces: directory trees under copy-on-write, in which programs run and from which changes are read."""
