"""Fails within seconds if a download is impossible. Imports TensorFlow Datasets."""

from __future__ import annotations

import contextlib
import threading
import urllib.parse
from collections.abc import Iterator
from typing import Any

import requests
from tensorflow_datasets.core.download import downloader

_PATIENCE_SECONDS = 5.0


class DownloadUnavailableError(ConnectionError):
    """A data set has to be downloaded, and its server cannot be reached."""


@contextlib.contextmanager
def check_before_downloading(dataset: str) -> Iterator[None]:
    """Makes TFDS' downloader test the connection once before it spends minutes on retries.

    The check sits below `DownloadManager`, so files that are cached or placed by hand need none.

    Args:
        dataset: The name of the data set in the error.

    Yields:
        Nothing; the check is active within the context.

    Raises:
        DownloadUnavailableError: If a download is started and the server cannot be reached.
    """
    unchecked = downloader._Downloader.download

    def download(self: Any, url: str, *args: Any, **kwargs: Any) -> Any:
        if urllib.parse.urlsplit(url).scheme in ("http", "https"):
            _require_reachable(url, dataset)
        return unchecked(self, url, *args, **kwargs)

    downloader._Downloader.download = download
    try:
        yield
    finally:
        downloader._Downloader.download = unchecked


def _require_reachable(url: str, dataset: str) -> None:
    reason = _unreachable(url)
    if reason:
        raise DownloadUnavailableError(
            f"{dataset[0].upper()}{dataset[1:]} has to be downloaded from {url}, which cannot be "
            f"reached ({reason}). Check the network (behind a proxy, HTTP_PROXY and HTTPS_PROXY "
            "too), or prepare the set on a machine with access and copy its folder into data_dir. "
            "Without a network, a folder of parallel text and the built-in set 'demo/en-de' work."
        )


def _unreachable(url: str) -> str:
    """The reason why a server does not answer; empty if it does."""
    answer: list[str] = []

    def ask() -> None:
        try:
            with requests.get(url, stream=True, timeout=_PATIENCE_SECONDS) as response:
                answer.append("" if response.ok else f"the server said {response.status_code}")
        except requests.RequestException as error:
            answer.append(type(error).__name__)

    # A name lookup has no time-out of its own, so the whole request gets one.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(2 * _PATIENCE_SECONDS)
    return answer[0] if answer else f"no answer within {2 * _PATIENCE_SECONDS:g} seconds"
