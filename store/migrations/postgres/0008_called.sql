-- +goose Up
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON called FOR EACH STATEMENT EXECUTE FUNCTION toolfinch_table_changed('called');
