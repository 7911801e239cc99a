"""The processes that judge: what waits for them, how they are started and watched, what crosses between."""
