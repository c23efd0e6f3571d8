package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// stored lists the tables of both databases, referenced tables first. Tables of running replicas are not among
// them.
var stored = []string{"servers", "tools", "pins", "baselines", "decisions", "tokens", "clients", "spaces", "vectors", "learned", "called",
	"failures", "outputs", "provisions", "savings", "vault", "keys", "segments"}

// numbered lists the tables whose column id is generated.
var numbered = []string{"spaces", "outputs", "provisions"}

// optional lists the columns that may be NULL.
var optional = map[string]bool{"servers.info": true, "servers.approved_info": true, "servers.capabilities": true, "pins.raw": true}

// Rows says how many rows a table has.
type Rows struct {
	Table string `json:"table"`
	Rows  int    `json:"rows"`
}

// count returns how many rows each table has.
func (s *Store) count(ctx context.Context) ([]Rows, error) {
	all := make([]Rows, len(stored))
	for i, table := range stored {
		all[i].Table = table
		if err := s.row(ctx, []any{&all[i].Rows}, `SELECT count(*) FROM `+table); err != nil {
			return nil, fmt.Errorf("store: count %s: %w", table, err)
		}
	}
	return all, nil
}

// ErrNotEmpty is wrapped by the error of Copy if the target has rows.
var ErrNotEmpty = errors.New("it is not empty")

// Copy copies everything from one store to another: all or, on an error, nothing. With replace, it empties the
// target first. It returns the copied rows by table. Generated IDs of PostgreSQL continue after the copied ones.
func Copy(ctx context.Context, from, to *Store, replace bool) (copied []Rows, err error) {
	slow := func(d *database) *database { d = new(*d); d.noTimeout = true; return d }
	source, target := slow(from.database), slow(to.database)
	err = source.read(ctx, func(ctx context.Context, db *sql.DB) error {
		rows, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead})
		if err != nil {
			return err
		}
		defer rows.Rollback() // nothing was written
		return target.write(ctx, func(ctx context.Context, tx *txn) error {
			copied = nil
			if err := empty(ctx, tx, replace); err != nil {
				return err
			}
			for _, table := range stored {
				n, err := copyTable(ctx, rows, tx, table)
				if err != nil {
					return fmt.Errorf("%s: %w", table, err)
				}
				copied = append(copied, Rows{table, n})
			}
			return tx.renumber(ctx)
		})
	})
	if err != nil {
		return nil, fmt.Errorf("store: copy: %w", err)
	}
	return copied, nil
}

// empty empties the target. A new store has one row, in decisions.
func empty(ctx context.Context, tx *txn, replace bool) error {
	for i := range stored {
		table := stored[len(stored)-1-i]
		var n int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM `+table).Scan(&n); err != nil {
			return err
		}
		if n > 0 && table != "decisions" && !replace {
			return fmt.Errorf("%w: %s has %d rows", ErrNotEmpty, table, n)
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM `+table); err != nil {
			return err
		}
	}
	return nil
}

func copyTable(ctx context.Context, source *sql.Tx, tx *txn, table string) (n int, err error) {
	columns, err := columnsOf(ctx, source, table)
	if err != nil {
		return 0, err
	}
	known, err := columnsOf(ctx, tx, table)
	if err != nil {
		return 0, err
	}
	for _, name := range columns {
		if !slices.Contains(known, name) {
			return 0, fmt.Errorf("a newer toolfinch has added %s, which this one does not know: use the newer one", name)
		}
	}
	rows, err := source.QueryContext(ctx, `SELECT `+strings.Join(columns, ", ")+` FROM `+table)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	err = tx.insert(ctx, table, columns, func() ([]any, error) {
		if !rows.Next() {
			return nil, rows.Err()
		}
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		for i, name := range columns {
			if bytes, is := values[i].([]byte); is && len(bytes) == 0 && !optional[table+"."+name] {
				values[i] = []byte{} // the SQLite driver returns nil for empty values, too
			}
			if number, is := values[i].(int64); is && (name == "interactive" || name == "checked") { // booleans of SQLite are numbers
				values[i] = number != 0
			}
		}
		n++
		return values, nil
	})
	return n, err
}

func columnsOf(ctx context.Context, db interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}, table string) ([]string, error) {
	rows, err := db.QueryContext(ctx, `SELECT * FROM `+table+` LIMIT 0`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	return rows.Columns()
}

// insert adds the rows that next returns, until it returns nil. PostgreSQL gets them in one statement.
func (tx *txn) insert(ctx context.Context, table string, columns []string, next func() ([]any, error)) error {
	if tx.postgres {
		return tx.copyIn(ctx, table, columns, next)
	}
	marks := make([]string, len(columns))
	for i := range marks {
		marks[i] = fmt.Sprintf("$%d", i+1)
	}
	put, err := tx.PrepareContext(ctx, `INSERT INTO `+table+` (`+strings.Join(columns, ", ")+`) VALUES (`+strings.Join(marks, ", ")+`)`)
	if err != nil {
		return err
	}
	defer put.Close()
	for {
		values, err := next()
		if err != nil || values == nil {
			return err
		}
		if _, err := put.ExecContext(ctx, values...); err != nil {
			return err
		}
	}
}

func (tx *txn) copyIn(ctx context.Context, table string, columns []string, next func() ([]any, error)) error {
	return tx.conn.Raw(func(driver any) error {
		conn := driver.(escaping).Conn.Conn()
		_, err := conn.CopyFrom(ctx, pgx.Identifier{table}, columns, pgx.CopyFromFunc(func() ([]any, error) {
			values, err := next()
			for i, value := range values {
				if text, is := value.(string); is {
					values[i] = escaped(text)
				}
			}
			return values, err
		}))
		return err
	})
}

// renumber makes PostgreSQL's generated IDs continue after the copied rows.
func (tx *txn) renumber(ctx context.Context) error {
	if !tx.postgres {
		return nil
	}
	for _, table := range numbered {
		_, err := tx.ExecContext(ctx, fmt.Sprintf(`SELECT setval(pg_get_serial_sequence('%s', 'id'), (SELECT coalesce(max(id), 0) + 1 FROM %[1]s), false)`, table))
		if err != nil {
			return err
		}
	}
	return nil
}
