"""A local page of runs, evaluations and data sets, which is updated while they are written."""
