"""Output for people: the command line, its analysis, tables, pages and figures."""
