-- The day on which the segment was used last, counted from 1970-01-01.
ALTER TABLE segments ADD COLUMN seen_on INTEGER NOT NULL DEFAULT 0;
