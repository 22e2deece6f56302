"""A bucket in S3 or another service with its API."""
