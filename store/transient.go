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

// Transient reports whether a method that failed may succeed later: PostgreSQL was away, went away, or was
// overloaded, or this replica does not lead the server. Errors of SQLite are not transient.
func Transient(err error) bool {
	var away *Away
	if refused, is := errors.AsType[*pgconn.PgError](err); is && slices.Contains(slow, refused.Code) || storesNothing(err) {
		return true
	}
	return errors.As(err, &away) || errors.Is(err, errUnknown) || errors.Is(err, errNotLed) || err != nil && retriable(err)
}

const lockTimeout = "55P03"

// slow are the codes of timeouts, of a lock, a statement or an idle transaction, and of too many connections.
var slow = []string{lockTimeout, "57014", "25P03", "53300"}

// unable are the codes of a database that cannot store now: its disk or memory is full, its disk fails, or it is
// read-only.
var unable = []string{"53100", "53200", "58030", "25006"}

// storesNothing reports whether the database answers, but stores nothing now.
func storesNothing(err error) bool {
	refused, is := errors.AsType[*pgconn.PgError](err)
	return is && slices.Contains(unable, refused.Code)
}

// absent reports whether an error says that there is no store at a place. With PostgreSQL, fs.ErrNotExist may come
// from the socket of a stopped server.
func absent(at string, err error) bool {
	return errors.Is(err, fs.ErrNotExist) && !(InPostgres(at) && Transient(err))
}

// Level returns the log level for an error of a method. While PostgreSQL is away this was logged once already; a
// replica that does not lead a server gets the leader's list.
func Level(err error) slog.Level {
	if away := (*Away)(nil); errors.As(err, &away) || errors.Is(err, errNotLed) {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// retriable reports whether a failed transaction may be tried again.
func retriable(err error) bool {
	var refused *pgconn.PgError
	switch {
	case errors.Is(err, errUnknown):
		return false
	case errors.As(err, &refused):
		switch refused.Code {
		case "40001", "40P01", // conflict with another transaction
			"57P01", "57P02", "57P03": // the server stops or starts
			return true
		}
		return false
	}
	var lost net.Error
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.As(err, &lost) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || pgconn.SafeToRetry(err)
}

// errNotLed is the error of a replica that stores the list of a server it no longer leads.
var errNotLed = errors.New("this replica does not lead the server now")
