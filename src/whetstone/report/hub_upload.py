"""Uploads files to a repository of the Hugging Face hub, as one commit.

``huggingface_hub`` does the transfer: it reads the token and ``HF_ENDPOINT``, and sends no large file twice.
No message contains the token. Every failure is a UserError that states the remedy.
"""

from __future__ import annotations

import importlib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from whetstone.core.errors import UserError
from whetstone.core.optional_packages import install_command

CARD = "README.md"
"""The file of a repository that the hub shows as its card."""

# The hub writes this file itself.
_OWN_FILES = {".gitattributes"}
_REPEAT = "run the same command again, which does not send a large file twice"
_REMEDIES = {
    400: "change what it names",
    401: "log in again (`hf auth login`), or set HF_TOKEN to a valid token",
    403: "use a token with the right to write there, or a name of your own",
}


def hub_library(module: str = "") -> Any:
    """Return ``huggingface_hub``, or one of its modules. Raises UserError if it is not installed."""
    try:
        return importlib.import_module(f"huggingface_hub{module}")
    except ModuleNotFoundError:
        raise UserError(f"the hub needs huggingface_hub: {install_command('data')}") from None


def upload(
    repo: str, kind: str, files: Mapping[str, Path | bytes], *, public: bool = False, replace: bool = False
) -> str:
    """Send ``files`` to a repository, which is made if there is none, and return its address.

    repo: OWNER/NAME, or NAME for the account of the token.
    kind: model or dataset.
    files: the path in the repository -> a local file, or the content itself.

    A new repository is private unless ``public``. One that has files is refused, or with ``replace`` gets
    these in place of its own. One that others can read is refused unless ``public``. Raises UserError.
    """
    library = hub_library()
    api, token = library.HfApi(), library.get_token()
    if token is None:
        raise UserError(
            f"{api.endpoint}: no token; log in (`hf auth login`), or set HF_TOKEN to a token that may write"
        )
    with _explained(repo, api.endpoint, token):
        account = str(api.whoami()["name"])
    repo = repo if "/" in repo else f"{account}/{repo}"
    address = f"{api.endpoint}/{'datasets/' if kind == 'dataset' else ''}{repo}"
    with _explained(f"{repo} (you are {account})", api.endpoint, token):
        api.create_repo(repo, repo_type=kind, private=not public, exist_ok=True)
        found = api.repo_info(repo, repo_type=kind)
        old = {entry.rfilename for entry in found.siblings or ()} - _OWN_FILES
        if old and not replace:
            raise UserError(
                f"{repo}: is already there, with {len(old)} files; give --replace if it is yours, or another "
                "name"
            )
        if not (found.private or public):
            raise UserError(
                f"{repo}: is public; give --public, or another name, or change it at {address}/settings"
            )
        changes: list[Any] = [
            library.CommitOperationAdd(name, file if isinstance(file, bytes) else str(file))
            for name, file in files.items()
        ]
        changes += [library.CommitOperationDelete(name) for name in sorted(old - files.keys())]
        api.create_commit(repo, changes, commit_message="Upload by Whetstone", repo_type=kind)
    return f"{address} ({'private' if found.private else 'public'})"


@contextmanager
def _explained(subject: str, endpoint: str, token: str) -> Generator[None]:
    """Turn an error of the hub into a UserError with its cause and the remedy."""
    errors = hub_library(".errors")
    # The base of the hub's own errors is that of the HTTP library below, which differs by version.
    network: tuple[type[BaseException], ...] = (OSError, *errors.HfHubHTTPError.__bases__)
    try:
        yield
        return
    except errors.OfflineModeIsEnabled:
        cause, remedy = "HF_HUB_OFFLINE is set", "unset it"
    except errors.HfHubHTTPError as error:
        # The address of a large file may hold a signature, so only the words of the server are shown.
        status = error.response.status_code
        cause = f"{endpoint} answers {status}, {error.server_message or error.response.reason_phrase}"
        remedy = _REMEDIES.get(status, _REPEAT)
    except network as error:
        cause = f"{endpoint} cannot be reached ({error})"
        remedy = f"check the network and HF_ENDPOINT, then {_REPEAT}"
    except ValueError as error:
        cause, remedy = f"the name, the card or a file is refused ({error})", "change it"
    cause = " ".join(cause.replace(token, "[token]").split())
    raise UserError(f"{subject}: {cause}; {remedy}")
