"""Decide whether an answer is correct: text, values, checkers. Programs have no access to this code."""
