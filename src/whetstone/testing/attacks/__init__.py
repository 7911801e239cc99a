"""Hostile programs that try to get accepted without a solution, or to harm the judge."""
