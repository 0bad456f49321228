"""Decode texts with any system: the driver that several stages share."""
