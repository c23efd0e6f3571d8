package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Listener is a connection that hears of what is changed in the store. It is used by one
// goroutine at a time.
type Listener struct{ conn *pgx.Conn }

// Listen opens a Listener. What is changed from now on, it hears of.
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

// Versions returns the version of each topic that was changed at any time. Another
// version is another state.
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

// Close ends it.
func (l *Listener) Close() error {
	closeSoon(l.conn)
	return nil
}
