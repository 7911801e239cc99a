"""Whetstone: reinforcement learning for code models, rewarded by tests you can trust."""

__version__ = "0.1.0"
