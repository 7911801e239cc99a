"""A Ray cluster out of a host file: its nodes started, joined and stopped over ssh."""
