"""OpenRLHF's reward function: `--reward.remote_url reward.py`."""

from whetstone.integrations.openrlhf import RewardFunction

# Keyword arguments are the sections `environment` and `judge` of a recipe.
reward_func = RewardFunction()
