"""Engines that are servers of their own, in processes and environments of their own: vLLM, SGLang."""
