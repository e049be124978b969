"""What the adapters of all trainers have in common."""
