"""Decode texts with any system: pieces of texts, shards of hypotheses, and the workers that write them."""
