"""One file for each kind of test: a case of it and a program become a judgement on the case."""
