"""Sinks, which show the metrics of a run in other tools."""
