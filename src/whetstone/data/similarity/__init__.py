"""What two problems have in common: words of their statements, cases of their tests, their programs."""
