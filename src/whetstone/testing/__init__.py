"""Tools that test the judge and the recipes: the attack corpus and smoke runs."""
