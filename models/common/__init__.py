"""What several families share: layers, objectives, options of searches, and the surroundings of decoders."""
