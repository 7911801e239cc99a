"""The fork-server: a small Python that locks itself up once and forks one confined child per run.

It runs as a fresh interpreter with nothing but the standard library (``boot.py`` starts it), so no
module here may import anything else, or anything of ``whetstone`` outside this folder. ``wire`` and
``scratch_dir`` are also used from the other side of its socket.
"""
