"""The judge as a reward function for other trainers: a common core, and a small adapter for each trainer."""
