"""Locks weights of the hub: each repository to a commit, and every file to its size and SHA-256.

    repositories.toml  --lock-->  hub.lock, in the form of the manifest

The hub has the hashes of large files. Small ones are downloaded and hashed here, and looked through for what asks for
code. What is locked already stays at its commit, unless it shall be brought up to date. Lines are sorted, so that a
new commit changes only lines that differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import ValidationError

from models.weights.files import WeightsError, hash_file, refuse_code
from models.weights.packages import last_line
from models.weights.stanzas import FetchedFile, Repository, Stanza, read

LOCK = Path(__file__).with_name("hub.lock")

HEAD = "# Written by `python -m launch weights lock`. Commit it; what changed in a model is the difference.\n"

WEIGHTS = (".safetensors", ".bin", ".onnx")
"""Suffixes of files with weights; a model has one at least."""


def fits(stanza: Stanza, repository: Repository) -> bool:
    """Says if `stanza` was locked for `repository` as it is now."""
    return (
        stanza.source == (repository.source,)
        and stanza.licence == repository.licence
        and all(map(repository.wants, stanza.files))
    )


def update(
    repositories: Mapping[str, Repository], path: Path = LOCK, *, upgrade: bool = False, endpoint: str | None = None
) -> dict[str, tuple[Stanza | None, Stanza]]:
    """Locks `repositories` into `path`, and leaves what else is locked there.

    Args:
        repositories: by the names of their weights.
        path: the lock file; it is replaced at once, when all is known.
        upgrade: take the newest commit also of what is locked.
        endpoint: address of the hub; None is the usual one, or that of `HF_ENDPOINT`.

    Returns what was locked before and what is now, by name, where that differs. Raises WeightsError.
    """
    locked = read(path)
    changed: dict[str, tuple[Stanza | None, Stanza]] = {}
    for name, repository in repositories.items():
        before = locked.get(name)
        if before and fits(before, repository) and not upgrade:
            continue
        now = resolve(repository, endpoint)
        if now != before:
            changed[name] = before, now
            locked[name] = now
    if changed:
        fresh = path.with_name(f"{path.name}.new")
        fresh.write_text(HEAD + "".join(_as_toml(name, locked[name]) for name in sorted(locked)), "utf-8")
        fresh.replace(path)
    return changed


def resolve(repository: Repository, endpoint: str | None = None) -> Stanza:
    """The newest commit of the branch of `repository`, with its files. Raises WeightsError."""
    from huggingface_hub import HfApi

    try:
        info = HfApi(endpoint=endpoint).model_info(
            repository.repository, revision=repository.branch, files_metadata=True
        )
    except Exception as error:  # the hub's client raises errors of several libraries
        raise WeightsError(f"could not look up `{repository.repository}`: {last_line(str(error))}") from error
    _check_licence(repository, info.tags or [])
    files = [file for file in info.siblings or [] if repository.wants(file.rfilename)]
    if not any(file.rfilename.endswith(WEIGHTS) for file in files):
        patterns = ", ".join(f"`{pattern}`" for pattern in repository.files)
        raise WeightsError(
            f"`{repository.repository}` has no weights among {patterns} on `{repository.branch}`; "
            "change `files` or `branch` in repositories.toml"
        )
    large = {file.rfilename: FetchedFile(size=file.lfs.size, sha256=file.lfs.sha256) for file in files if file.lfs}
    small = [file.rfilename for file in files if not file.lfs]
    pins = dict(sorted((large | _hashed(repository, str(info.sha), small, endpoint)).items()))
    try:
        return Stanza(source=(repository.source,), licence=repository.licence, revision=info.sha, files=pins)
    except ValidationError:
        raise WeightsError(f"the hub gave no commit, or names of files outside of `{repository.repository}`") from None


def _check_licence(repository: Repository, tags: Iterable[str]) -> None:
    """Checks the licence that the hub names, if it names one."""
    licences = [tag.removeprefix("license:") for tag in tags if tag.startswith("license:")]
    if licences and repository.licence_on_hub not in licences:
        raise WeightsError(
            f"`{repository.repository}` is under `{', '.join(licences)}` now, but repositories.toml says "
            f"`{repository.licence}`; read the licence, then change `licence` or `tag` there"
        )


def _hashed(
    repository: Repository, revision: str, names: Iterable[str], endpoint: str | None
) -> dict[str, FetchedFile]:
    """Pins of files that the hub keeps no SHA-256 of. They are downloaded for it."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    with TemporaryDirectory() as folder:
        try:
            files = {
                name: Path(
                    hf_hub_download(repository.repository, name, revision=revision, local_dir=folder, endpoint=endpoint)
                )
                for name in names
            }
        except Exception as error:  # the hub's client raises errors of several libraries
            raise WeightsError(f"could not download from `{repository.repository}`: {last_line(str(error))}") from error
        refuse_code(files)
        return {name: FetchedFile(size=path.stat().st_size, sha256=hash_file(path)) for name, path in files.items()}


def _as_toml(name: str, stanza: Stanza) -> str:
    """A stanza as TOML. Strings are quoted as in JSON, because what the hub calls its files cannot be trusted."""
    title = json.dumps(name)
    lines = ["", f"[{title}]", f'source = "{stanza.source[0]}"', f'revision = "{stanza.revision}"']
    lines += [f"licence = {json.dumps(stanza.licence)}", "", f"[{title}.files]"]
    lines += [
        f'{json.dumps(file)} = {{ size = {pin.size}, sha256 = "{pin.sha256}" }}' for file, pin in stanza.files.items()
    ]
    return "\n".join(lines) + "\n"
