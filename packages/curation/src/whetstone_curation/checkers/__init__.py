"""Checkers that a model writes: the problems that need one, the prompt, and the trial of a checker."""
