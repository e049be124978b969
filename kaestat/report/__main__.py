"""``python -m kaestat.report``: the command ``kaestat``."""

from kaestat.report.cli import main

if __name__ == "__main__":
    main()
