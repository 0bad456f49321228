"""The commands of the command line: thin functions over the other modules of `pipeline` and the packages that it imports."""
