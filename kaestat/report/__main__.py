"""``python -m kaestat.report``: the command ``kaestat``."""

from kaestat.report.entry import main

if __name__ == "__main__":
    main()
