-- The day on which the segment was used last, counted from 1970-01-01. Programs that do not
-- know the column store segments on the day of the default.
ALTER TABLE segments ADD COLUMN seen_on BIGINT NOT NULL DEFAULT CAST(floor(extract(epoch FROM now()) / 86400) AS BIGINT);
