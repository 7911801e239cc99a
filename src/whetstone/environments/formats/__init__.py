"""How families of models write replies: ``families.toml`` has a row for each, and the modules read by it."""
