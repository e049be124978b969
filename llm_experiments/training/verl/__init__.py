"""Training on verl and Ray: the command, the data and the rewards."""
