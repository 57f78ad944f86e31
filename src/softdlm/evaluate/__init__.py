"""What a decoding method does to accuracy, recovery and forward passes."""
