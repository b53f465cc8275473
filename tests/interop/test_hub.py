"""Names at the hub: completed and mended from the registry of public checkpoints."""

import types

import pytest

from keras_addnorm.interop import hub


@pytest.fixture
def asked(monkeypatch):
    """The names that a hub out of reach was asked for."""
    names = []

    def model_info(name, timeout):
        names.append(name)
        raise ConnectionError("no network")

    def snapshot_download(name, **_):
        raise FileNotFoundError(name)

    fake = types.SimpleNamespace(
        HfApi=lambda: types.SimpleNamespace(model_info=model_info),
        snapshot_download=snapshot_download,
    )
    monkeypatch.setattr(hub, "require_extra", lambda *_: (fake,))
    return names


@pytest.mark.parametrize(
    ("given", "looked_up", "meant"),
    [
        ("opus-mt-en-de", "Helsinki-NLP/opus-mt-en-de", None),
        ("Helsinki-NLP/opus-mt-en-de", "Helsinki-NLP/opus-mt-en-de", None),
        ("opus-mt-en-zhh", None, "Helsinki-NLP/opus-mt-en-zh"),
        ("facebook/nllb-200-destilled-600M", None, "facebook/nllb-200-distilled-600M"),
        ("someone/something-else-entirely", None, None),
    ],
)
def test_a_name_is_completed_or_has_the_nearest(asked, given, looked_up, meant):
    with pytest.raises(FileNotFoundError, match="no network") as refused:
        hub.find_checkpoint(given)
    assert asked == [looked_up or given]
    hint = None if meant is None else f"Did you mean {meant!r}?"
    assert (hint in str(refused.value)) if hint else "Did you mean" not in str(refused.value)


def test_a_checkpoint_that_does_not_load_is_not_fetched(asked):
    with pytest.raises(ValueError, match=r"Moses.*zoo list --public"):
        hub.find_checkpoint("facebook/wmt19-en-de")
    assert asked == []
