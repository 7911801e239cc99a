"""Tools that test the judge and the recipes: the attack corpus, load tests and smoke runs."""
