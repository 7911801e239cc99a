"""Programs that are run, not judged: what they print, and the files that they leave."""
