"""A model of no size, in a folder, for commands that load one."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    from whetstone.engine.loading import save_model
    from whetstone.engine.scratch import build_scratch
    from whetstone.engine.settings import ScratchModel

    settings = ScratchModel(
        hidden_size=32, layers=2, heads=2, kv_heads=2, intermediate_size=64, vocab_size=300, max_positions=512
    )
    built, tokenizer = build_scratch(settings, ["def f(xs):\n    return sum(xs)\n"] * 4, 0)
    folder = tmp_path_factory.mktemp("model")
    save_model(built, tokenizer, folder)
    return folder
