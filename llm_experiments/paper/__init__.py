"""From one command to the tables of the paper: what is to be run, in which order, and the running of it."""
