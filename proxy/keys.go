package proxy

import (
	"context"
	"errors"
	"time"

	"toolfinch/configs"
	"toolfinch/store"
	"toolfinch/upstream"
	"toolfinch/upstream/login"
)

// sweepEvery bounds how long the logins and stored data of a key remain after the key expired, or was revoked by a
// program that could not end the logins.
const sweepEvery = time.Minute

// endGone ends the logins of keys that were revoked or have expired. to returns the login to a server.
func (l *logins) endGone(ctx context.Context, db *store.Store, to func(server string) *login.Server) (ended int, err error) {
	return l.EndGone(ctx, func(ctx context.Context, principals []string) ([]string, error) {
		return db.Keys().Gone(ctx, principals, time.Now())
	}, to)
}

// EndGone ends the logins of keys that were revoked or have expired, and returns how many.
func (l *Logins) EndGone(ctx context.Context) (ended int, err error) {
	return l.endGone(ctx, l.store, func(server string) *login.Server {
		return loginIn(l.Logins, l.config, server)
	})
}

// loginIn returns the login to a server of a configuration; nil for none.
func loginIn(logins *login.Logins, config *configs.Config, server string) *login.Server {
	for _, s := range config.Servers {
		if s.Name == server {
			return upstream.LoginTo(logins, s)
		}
	}
	return nil
}

// sweepKeys removes the logins and data of revoked and expired keys until ctx ends: soon after keys change, and every
// minute, because nothing announces that a key expires. Only the replica that leads "" does this.
func (d *desk) sweepKeys(ctx context.Context) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		if d.views.leadsCommon() {
			ended, err := d.views.logins.endGone(ctx, d.store, d.views.pool.Login)
			if ended > 0 {
				d.views.pool.LoginChanged("")
			}
			err = errors.Join(err, d.store.Keys().Sweep(ctx, time.Now()))
			if err != nil && ctx.Err() == nil {
				d.views.log.Log(ctx, store.Level(err), "what belongs to keys that are gone could not all be ended", "error", err)
			}
		}
		select {
		case <-d.keysChanged:
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// leadsCommon reports whether this process does the work that belongs to no server.
func (s *views) leadsCommon() bool {
	leads := s.others.leader()
	if leads == nil {
		return true
	}
	is, _ := leads("")
	return is
}
