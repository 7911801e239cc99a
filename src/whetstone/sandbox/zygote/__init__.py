"""The fork-server: a small Python process that confines itself once, and forks one confined child per run.

It is a fresh interpreter with the standard library only, started by ``boot.py``. Therefore no module here may
import anything else, nor anything of ``whetstone`` outside this folder. ``wire`` and ``tmp_dir`` are also
used by the client.
"""
