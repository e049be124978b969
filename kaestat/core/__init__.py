"""Arrays, argument checks, samples, storage and provenance: the foundation of all other packages."""
