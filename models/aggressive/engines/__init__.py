"""Engines that draft and verify."""
