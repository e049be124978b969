"""Values for turns and for tokens."""
