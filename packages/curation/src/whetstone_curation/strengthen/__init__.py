"""Stronger tests: new inputs with the answers of the references, chosen by the wrong programs they reject."""
