"""A local page over runs, evaluations and data sets, live while they are written."""
