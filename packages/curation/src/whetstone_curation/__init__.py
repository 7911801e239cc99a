"""Whetstone's curation of problem sets: stronger tests and audits."""
