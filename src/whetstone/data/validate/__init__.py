"""Are the tests of a problem right, enough and fair? ``validator`` for one problem, ``run`` for a set."""
