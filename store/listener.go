package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Listener is a connection that receives notifications of changes. One goroutine uses it at a time.
type Listener struct{ conn *pgx.Conn }

// Listen opens a Listener. It receives every change from now on.
func (r *Replicas) Listen(ctx context.Context) (*Listener, error) {
	conn, err := r.remote.connect(ctx)
	if err == nil {
		if _, err = conn.Exec(ctx, `LISTEN `+r.channel()); err != nil {
			closeSoon(conn)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("store: listen for changes: %w", err)
	}
	return &Listener{conn}, nil
}

// Versions returns the version of each topic that ever changed. A different version means a different state.
func (l *Listener) Versions(ctx context.Context) (map[Topic]int64, error) {
	rows, err := l.conn.Query(ctx, `SELECT kind, key, version FROM changes`)
	if err != nil {
		return nil, fmt.Errorf("store: read versions: %w", err)
	}
	all := map[Topic]int64{}
	var topic Topic
	var version int64
	_, err = pgx.ForEachRow(rows, []any{&topic.Kind, &topic.Key, &version}, func() error {
		all[topic] = version
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("store: read versions: %w", err)
	}
	return all, nil
}

// Next waits for the next notification. After ctx has ended it may be called again.
func (l *Listener) Next(ctx context.Context) (Notice, error) {
	for {
		got, err := l.conn.WaitForNotification(ctx)
		if err != nil {
			return Notice{}, fmt.Errorf("store: wait for changes: %w", err)
		}
		var n notice
		if json.Unmarshal([]byte(got.Payload), &n) == nil { // anybody can notify
			return Notice{Topic{n.Kind, n.Key}, n.Version, n.Detail}, nil
		}
	}
}

// Close closes the connection.
func (l *Listener) Close() error {
	closeSoon(l.conn)
	return nil
}
