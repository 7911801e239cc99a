"""Programs that want to be accepted without solving their problem, or to harm the judge, and their proof."""
