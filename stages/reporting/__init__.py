"""The page of a run: what it shows, gathered from artifacts, as HTML, Markdown and figures."""
