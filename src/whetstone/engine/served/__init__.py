"""Engines that are servers in separate processes and Python environments: vLLM, SGLang."""
