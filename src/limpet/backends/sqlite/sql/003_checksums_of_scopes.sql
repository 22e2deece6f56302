-- Over the columns of a row that decide an answer. NULL: the row was last written before version 3.
ALTER TABLE sessions ADD COLUMN checksum INTEGER;
ALTER TABLE scopes ADD COLUMN checksum INTEGER;
