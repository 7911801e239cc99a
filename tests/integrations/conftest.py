"""Lets the folders of the frameworks import what they share from here, and a server of ours."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "judge_service"))
