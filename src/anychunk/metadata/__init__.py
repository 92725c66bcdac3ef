"""What samples mean, where they lie and how they are drawn, in terms that no format owns."""
