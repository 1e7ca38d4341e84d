"""What loads them, in processes of their own."""
