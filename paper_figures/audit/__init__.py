"""The paper's own numbers, computed again from what it prints."""
