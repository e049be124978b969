"""Names of the law's tables."""

COMPLETIONS, PROMPTS, SUMMARY = "completions.csv.gz", "prompts.csv", "summary.csv"
PREDICTIONS, PROVENANCE = "predictions.csv", "provenance.json"
DIGITS = 5
