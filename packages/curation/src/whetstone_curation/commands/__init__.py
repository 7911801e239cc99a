"""The commands of this package, actions of ``whetstone data``."""
