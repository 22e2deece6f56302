"""One module for each page, with the parts and forms that belong to it."""
