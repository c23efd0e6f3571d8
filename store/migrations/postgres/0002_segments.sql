-- +goose Up
CREATE TABLE segments (
	key  BYTEA PRIMARY KEY,
	docs BIGINT NOT NULL,
	data BYTEA NOT NULL
);
