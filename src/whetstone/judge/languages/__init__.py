"""What programs may be written in: one entry each, their tools, and how a program is made ready to run."""
