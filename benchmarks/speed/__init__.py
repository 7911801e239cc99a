"""Parts of ``judge_speed.py``: contestants, their processes, their work, CPU of a process tree."""
