"""The optimizer: masters that remember what bf16 forgets, skipped updates, clipping, one owner at a time."""

from typing import Any

import pytest
import torch
from torch import nn

from tests.trainer.tiny_models import tiny_llama
from whetstone.core.errors import UserError
from whetstone.trainer.optimizer import MasterAdamW


def linear(dtype):
    torch.manual_seed(0)
    return nn.Linear(8, 4).to(dtype)


def test_updates_smaller_than_a_bf16_ulp_accumulate_in_the_masters():
    layer = linear(torch.bfloat16)
    with torch.no_grad():
        layer.weight.fill_(1.0)
    optimizer = MasterAdamW(layer.named_parameters(), betas=(0.9, 0.95), grad_clip=1e9)
    for step in range(20):
        layer(torch.ones(1, 8, dtype=torch.bfloat16)).sum().backward()
        optimizer.update(1e-3)
        if step == 0:
            assert (layer.weight == 1.0).all()
    assert torch.allclose(optimizer.state_dict()["master/weight"], torch.tensor(0.98), atol=1e-5)
    assert (layer.weight < 0.985).all()
    assert torch.equal(layer.weight, optimizer.state_dict()["master/weight"].bfloat16())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_micro_batch_gradients_are_summed_in_fp32_and_update_as_plain_adamw(dtype):
    layer = linear(dtype)
    plain = linear(dtype).float()
    optimizer = MasterAdamW(layer.named_parameters(), weight_decay=0.1, grad_clip=0.5)
    groups = [{"params": [plain.weight], "weight_decay": 0.1}, {"params": [plain.bias], "weight_decay": 0.0}]
    reference = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.95))
    torch.manual_seed(1)
    for _ in range(3):
        totals = [torch.zeros_like(p) for p in plain.parameters()]
        for x in torch.randn(5, 2, 8).to(dtype):
            loss = layer(x).pow(2).sum()
            for total, g in zip(totals, torch.autograd.grad(loss, [*layer.parameters()]), strict=True):
                total += g
            layer(x).pow(2).sum().backward()
        for p, total in zip(plain.parameters(), totals, strict=True):
            p.grad = total
        expected = nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        reference.step()
        assert optimizer.update(0.01) == pytest.approx(float(expected), rel=1e-6)
        for (name, p), q in zip(plain.named_parameters(), layer.parameters(), strict=True):
            assert torch.allclose(optimizer.state_dict()[f"master/{name}"], p, atol=1e-7)
            assert torch.equal(q, optimizer.state_dict()[f"master/{name}"].to(dtype))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_changes_nothing_and_is_counted(bad):
    layer = linear(torch.bfloat16)
    optimizer = MasterAdamW(layer.named_parameters())
    layer(torch.ones(1, 8, dtype=torch.bfloat16)).sum().backward()
    optimizer.update(0.1)
    before = {name: value.clone() for name, value in optimizer.state_dict().items()}
    weights = [p.detach().clone() for p in layer.parameters()]
    (layer(torch.ones(1, 8, dtype=torch.bfloat16)).sum() * bad).backward()
    optimizer.update(0.1)
    after = optimizer.state_dict()
    assert optimizer.skipped == int(after.pop("skipped")) == 1
    assert all(torch.equal(before[name], value) for name, value in after.items())
    assert all(torch.equal(a, b) for a, b in zip(weights, layer.parameters(), strict=True))
    resumed = MasterAdamW(linear(torch.bfloat16).named_parameters())
    resumed.load_state_dict(optimizer.state_dict())
    assert resumed.skipped == 1
    layer(torch.ones(1, 8, dtype=torch.bfloat16)).sum().backward()
    assert optimizer.update(0.1) > 0
    assert not torch.equal(weights[0], layer.weight)


def test_gradient_buffers_are_allocated_once():
    layer = linear(torch.bfloat16)
    optimizer = MasterAdamW(layer.named_parameters())
    places = [g.data_ptr() for g in optimizer._gradients]
    for _ in range(3):
        layer(torch.ones(1, 8, dtype=torch.bfloat16)).sum().backward()
        assert layer.weight.grad is None
        optimizer.update(0.1)
    masters: Any = optimizer._masters
    assert [m.grad.data_ptr() for m in masters.values()] == places


def test_a_closed_optimizer_leaves_the_model_to_the_next_one():
    layer = linear(torch.float32)
    first = MasterAdamW(layer.named_parameters())
    first.close()
    second = MasterAdamW(layer.named_parameters())
    layer(torch.ones(1, 8)).sum().backward()
    assert first.update(0.1) == 0.0
    assert second.update(0.1) > 0.0


def test_state_of_another_model_is_refused_by_name():
    state = MasterAdamW(tiny_llama(hidden_size=16).named_parameters()).state_dict()
    with pytest.raises(UserError, match=r"embed_tokens\.weight.*shape \[61, 16\].*\[61, 32\]"):
        MasterAdamW(tiny_llama().named_parameters()).load_state_dict(state)


def test_half_precision_parameters_are_refused():
    with pytest.raises(UserError, match="float16"):
        MasterAdamW(linear(torch.float16).named_parameters())
