"""Arrays, argument checks, samples, storage and provenance: what every other room stands on."""
