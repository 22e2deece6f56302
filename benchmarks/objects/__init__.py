"""What documents in a folder or a bucket cost, against writing the same by hand."""
