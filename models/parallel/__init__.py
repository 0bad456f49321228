"""Networks that write all slots of a target at once: one-shot decoders, CTC and Mask-Predict."""
