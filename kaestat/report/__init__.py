"""What people read: the command line, its analysis, tables, pages and figures."""
