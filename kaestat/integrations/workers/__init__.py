"""Histories of several workers: by an exchange between ranks, or in one actor."""
