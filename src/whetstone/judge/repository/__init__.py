"""Grade a change of a code base by hidden tests, whose expected values never reach the code under test."""
