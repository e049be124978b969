"""Values for turns."""
