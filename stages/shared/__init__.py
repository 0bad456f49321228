"""Code that two or more stages use, in a folder for each subject. It imports no stage."""
