"""Whether an answer is right: text, values, checkers. All of it happens outside of programs."""
