"""``python -m kaestat``: the command ``kaestat``."""

from kaestat.report.entry import main

if __name__ == "__main__":
    main()
