"""Settings of other tools that show the metrics of a run."""

from __future__ import annotations

from whetstone.core.settings import Section


class ReportSection(Section):
    """Tools that show ``metrics.jsonl``. The file stays authoritative. Each tool needs its library.

    tensorboard: event files in the run's folder, under ``views/tensorboard``.
    wandb, trackio: the project of the run; empty for none. Their own settings decide whether and where they
        send data (``WANDB_MODE=offline``).
    """

    tensorboard: bool = False
    wandb: str = ""
    trackio: str = ""
