package store

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
)

// errUnknown is wrapped by the error of a transaction that may have been committed.
var errUnknown = errors.New("the connection was lost at the end of a transaction: it is not known whether it was stored")

// Transient reports whether what a method was asked for may succeed later: its error says that
// PostgreSQL was away, or became so, or had too much to do, or that this replica does not lead a
// server now. Errors of SQLite do not pass by themselves.
func Transient(err error) bool {
	var away *Away
	if refused, is := errors.AsType[*pgconn.PgError](err); is && slices.Contains(slow, refused.Code) || storesNothing(err) {
		return true
	}
	return errors.As(err, &away) || errors.Is(err, errUnknown) || errors.Is(err, errNotLed) || err != nil && again(err)
}

const lockTimeout = "55P03"

// slow are the codes of what took too long: a lock, a statement, a pause in a transaction; and
// of too many connections.
var slow = []string{lockTimeout, "57014", "25P03", "53300"}

// unable are the codes of what the database cannot do at present: its disk is full, its memory is, its disk
// fails, it may not be written to.
var unable = []string{"53100", "53200", "58030", "25006"}

// storesNothing reports whether an error says that the database answers and stores nothing at present.
func storesNothing(err error) bool {
	refused, is := errors.AsType[*pgconn.PgError](err)
	return is && slices.Contains(unable, refused.Code)
}

// absent reports whether an error says that there is no store at a place. One of PostgreSQL may
// wrap fs.ErrNotExist for the socket of a server that does not run.
func absent(at string, err error) bool {
	return errors.Is(err, fs.ErrNotExist) && !(InPostgres(at) && Transient(err))
}

// Level is the level at which an error of a method is logged. While PostgreSQL is away, or stores
// nothing, that is known and was said once. Who does not lead a server now is told what its leader
// has listed.
func Level(err error) slog.Level {
	if away := (*Away)(nil); errors.As(err, &away) || errors.Is(err, errNotLed) {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// again reports whether a transaction that failed may be tried again.
func again(err error) bool {
	var refused *pgconn.PgError
	switch {
	case errors.Is(err, errUnknown):
		return false
	case errors.As(err, &refused):
		switch refused.Code {
		case "40001", "40P01", // another transaction was first
			"57P01", "57P02", "57P03": // the server stops or starts
			return true
		}
		return false
	}
	var lost net.Error
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.As(err, &lost) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || pgconn.SafeToRetry(err)
}

// errNotLed is the error of a replica that writes what it has listed, and leads the server no more.
var errNotLed = errors.New("this replica does not lead the server now")
