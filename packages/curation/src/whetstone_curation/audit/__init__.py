"""How often the tests of a set accept wrong programs and reject correct ones."""
