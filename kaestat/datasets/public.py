"""Public reward logs of real runs, downloaded once and checked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kaestat.core.provenance import checksum

FOLDER_VARIABLE = "KAESTAT_DATA"


@dataclass(frozen=True)
class Source:
    """Where a file is published, and the checksum that tells it.

    Attributes
    ----------
    url : str
    sha256 : str
    """

    url: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The published file's name, which local copies have too."""
        return self.url.rsplit("/", maxsplit=1)[-1]


SOURCES = {
    "acc_step_500": Source(
        url="https://raw.githubusercontent.com/ypwang61/One-Shot-RLVR/main/data/acc_step_500.json",
        sha256="c34cd885edc77dc9494b0ababa239483799be5978e288e0181047f139f2efd34",
    ),
}


def fetch(name: str, *, cache: str | os.PathLike[str] | None = None) -> Path:
    """Path of a public reward log, which is downloaded at the first call.

    ================  ==================================================================================================
    name              content
    ================  ==================================================================================================
    ``acc_step_500``  accuracies of the groups of a 500-step GRPO run of Qwen2.5-Math-1.5B: 1,209 prompts, eight
                      completions a visit, about 56 visits a prompt; github.com/ypwang61/One-Shot-RLVR, Apache-2.0 [1]_
    ================  ==================================================================================================

    A file of the published name in the folder that the environment variable ``KAESTAT_DATA`` names is taken first, and
    then nothing is downloaded.

    Parameters
    ----------
    name : str
    cache : path, optional
        Folder to download to. None is the user's cache folder of the operating system
        (``pooch.os_cache("kaestat")``).

    Returns
    -------
    Path
        Of a file whose checksum has been compared just now; `kaestat.read_log` reads it.

    Raises
    ------
    ValueError
        If the name is unknown, or the file in ``KAESTAT_DATA`` or the one downloaded is not the published one. A
        download that fails the check is not kept.
    ModuleNotFoundError
        If pooch is needed and not installed.
    ConnectionError
        If there is neither a copy nor a connection, or the server refuses.

    References
    ----------
    .. [1] Wang et al. (2025). Reinforcement Learning for Reasoning in Large Language Models with One Training Example.
       arXiv:2504.20571.
    """
    if name not in SOURCES:
        raise ValueError(f"name: unknown {name!r}; choose one of {', '.join(SOURCES)}.")
    source = SOURCES[name]
    return _local_copy(source) or _download(name, source, cache)


def _local_copy(source: Source) -> Path | None:
    folder = os.environ.get(FOLDER_VARIABLE)
    path = Path(folder or "") / source.file_name
    if not folder or not path.is_file():
        return None
    if checksum(path) != source.sha256:
        raise ValueError(
            f"{path}: is not the file published at {source.url}, whose SHA-256 is {source.sha256}. Replace it, or "
            f"unset {FOLDER_VARIABLE} to download."
        )
    return path


def _download(name: str, source: Source, cache: str | os.PathLike[str] | None) -> Path:
    by_hand = f"or download {source.url} by hand and let the environment variable {FOLDER_VARIABLE} name its folder"
    try:
        import pooch
        from requests import RequestException  # what pooch's downloader raises
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"downloading {name!r} needs pooch: pip install 'kaestat[data]', {by_hand}.", name=error.name
        ) from None
    folder = Path(cache) if cache is not None else pooch.os_cache("kaestat")
    try:
        return Path(pooch.retrieve(source.url, f"sha256:{source.sha256}", fname=source.file_name, path=folder))
    except RequestException as error:
        raise ConnectionError(
            f"{name!r} could not be downloaded: {error}. Connect and try again, {by_hand}."
        ) from error
    except ValueError as error:
        raise ValueError(
            f"{name!r} did not come as published, and was not kept: {error} Try again, {by_hand}."
        ) from error
