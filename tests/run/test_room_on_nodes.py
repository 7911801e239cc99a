"""``whetstone train --ray`` begins only where each role has a place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.run.roles_by_hand import write_async_recipe
from whetstone.core.errors import UserError
from whetstone.core.ray_driver import RayNode
from whetstone.run.recipe import load_recipe
from whetstone.run.roles.on_ray import check_resources

HERE = RayNode("here", "10.0.0.1", {"CPU": 4.0})
FAR = RayNode("far", "10.0.0.2", {"CPU": 16.0, "GPU": 2.0})


def room(folder: Path, nodes: list[RayNode], *overrides: str) -> RayNode:
    recipe = load_recipe(write_async_recipe(folder), list(overrides))
    return check_resources(nodes, "here", recipe)


def test_the_trainer_is_on_this_machine_and_replicas_anywhere(tmp_path: Path) -> None:
    asks = ("model.device=cpu", "flow.resources.trainer.cpus=4", "flow.resources.replica.gpus=2")
    assert room(tmp_path, [FAR, HERE], *asks) == HERE
    with pytest.raises(
        UserError, match=r"no place for a trainer, which needs 5 CPU and 0 GPU .*10\.0\.0\.1/here has 4 CPU"
    ):
        room(tmp_path, [FAR, HERE], "model.device=cpu", "flow.resources.trainer.cpus=5")


def test_the_error_for_a_replica_without_a_node_lists_the_resources(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"no place for a replica, .*/here has 4 CPU and 0 GPU; .*/far has 16 CPU and 2 GPU"
    ):
        room(tmp_path, [HERE, FAR], "model.device=cpu", "flow.resources.replica.cpus=17")


def test_a_cluster_with_unrequested_gpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"Ray would give a replica no GPU: set `flow\.resources\.replica\.gpus`"
    ):
        room(tmp_path, [HERE, FAR], "model.device=auto")
    with pytest.raises(UserError, match=r"`model\.device` is cuda, and Ray would give a trainer no GPU"):
        room(tmp_path, [HERE], "model.device=cuda")
    assert room(tmp_path, [HERE], "model.device=auto") == HERE
