"""What samples mean, where they lie and how they are drawn, in words that no format owns."""
