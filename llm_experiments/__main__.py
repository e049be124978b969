"""``python -m llm_experiments``: run a configuration from the command line."""

import sys

try:
    from llm_experiments.cli import main
except ImportError as error:
    sys.exit(f"error: {error.name} is not installed; the experiments need: pip install -e '.[llm]'")

if __name__ == "__main__":
    main()
