"""Values and systems that follow from others: numbers from the amount of text, systems from seeds."""
