"""The reward-hacking drill: the same small policy trained with the rewards of several judges."""
