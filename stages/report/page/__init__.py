"""The report as an HTML page and as Markdown."""
