"""Whetstone's curation of problem sets: stronger tests, checkers written by models, audits, rarer sources."""
