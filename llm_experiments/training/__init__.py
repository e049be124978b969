"""Policy optimisation: training runs on TRL with any baseline, from a checked configuration to curves with errors."""
