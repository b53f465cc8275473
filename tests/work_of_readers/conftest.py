"""What the tests of the work of readers share."""

import json

import pytest
from counted_work import with_texts
from hostile_loading import make_no_model


@pytest.fixture
def no_models(monkeypatch):
    """Checkpoints are read and no model is made; texts of JSON are compared in Python."""
    make_no_model(monkeypatch)
    loads = json.loads
    monkeypatch.setattr(json, "loads", lambda *given, **more: with_texts(loads(*given, **more)))
