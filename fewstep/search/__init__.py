"""Searches over scores that a network computed: beams, joint steps, directed acyclic graphs."""
