"""Why designs differ: the error of their values, the noise of their updates, and what updates do to the answers."""
