"""Layers of Transformers: embeddings, attention, feed-forward blocks, stacks, and the encoder-decoder that families share."""
