"""The worker processes of a judge: their queue, how they are started and watched, and their messages."""
