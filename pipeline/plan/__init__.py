"""From a config to a plan of steps, as plain data."""
