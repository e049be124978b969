"""What the law of the baseline needs to know of a policy: the weight of right and wrong answers, and the signal."""
