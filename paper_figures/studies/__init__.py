"""One builder for each simulation study's table and figure."""
