"""What a baseline's law needs to know of a policy: how much right and wrong answers weigh, and how much there is to learn."""
