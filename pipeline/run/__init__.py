"""Run a plan: attempts, leases, machines, records."""
