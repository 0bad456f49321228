"""The commands of `fewstep`; each module has `add_arguments` and `run`."""
