"""What an encoder is measured by, one family a file."""
