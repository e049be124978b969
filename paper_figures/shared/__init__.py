"""What the builders share: the paper's numbers as data, charts, findings, and files."""
