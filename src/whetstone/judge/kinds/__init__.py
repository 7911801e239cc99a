"""One module for each kind of test. Each judges a program on one case."""
