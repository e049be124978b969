"""What estimators whose states are compared have in common."""

import pytest


@pytest.fixture
def one_sender(monkeypatch):
    """Estimators number their deltas under one name, so that their states can be compared."""
    monkeypatch.setattr("kaestat.asynchronous.estimator.secrets.token_hex", lambda size: "sender")
