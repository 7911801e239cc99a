"""Today's judge on the replies of a finished run, of Whetstone or of another trainer."""
