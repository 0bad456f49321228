"""A deterministic simulation of stores, leases, drivers and mirrors: one process, one random generator, many short histories.

Every call of the simulated file system is a place where another process may run, where the machine may lose power, where a process
may die or be paused, and where the call may fail. A history is a function of its fault class and its seed.
"""
