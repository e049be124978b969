"""Histories on several workers: exchanged between ranks, or kept in one actor."""
