"""The load generators, in processes of their own."""
