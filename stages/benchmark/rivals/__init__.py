"""Other engines in processes of their own, with the environment and the calls of their users."""
