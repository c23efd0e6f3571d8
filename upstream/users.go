package upstream

import (
	"sync"

	"toolfinch/tool"
)

// users are the clients of a connection. The server's requests outside of calls are for
// the only client.
type users struct {
	mu    sync.Mutex // guards the fields below
	count userCount
	user  user
	roots bool // the server has asked for roots
}

type user struct {
	key     string
	session bool // the client has a session, so it can be asked outside of calls
}

type userCount int

const (
	noUser userCount = iota
	oneUser
	manyUsers
)

// become makes a client the only user. It reports stale if the server has asked for the
// roots of the user before.
func (u *users) become(client *tool.Client) (stale bool) {
	key := privateKey(client)
	u.mu.Lock()
	defer u.mu.Unlock()
	changed := u.count != oneUser || u.user.key != key
	u.count, u.user = oneUser, user{key, client != nil && !client.Modern}
	return changed && u.roots
}

// add adds a user to a connection that all clients share.
func (u *users) add(client *tool.Client) {
	var next user
	if client != nil {
		next = user{client.Key, !client.Modern}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.count == noUser:
		u.count, u.user = oneUser, next
	case u.user.key != next.key:
		u.count = manyUsers
	}
}

// forget removes a client that has left, so that it is not asked.
func (u *users) forget(key string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.count == oneUser && u.user.key == key {
		u.count = noUser
	}
}

// session returns the key of the only session that has used the connection; "" for none
// or several.
func (u *users) session() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.count != oneUser || !u.user.session {
		return ""
	}
	return u.user.key
}

// isOnly reports whether the client with key is the only user.
func (u *users) isOnly(key string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return key != "" && u.count == oneUser && u.user.key == key
}

// wantRoots notes that the server has asked for roots.
func (u *users) wantRoots() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.roots = true
}

// privateKey returns the key of a client's private connection; "" for clients that cannot be
// asked, which share a connection.
func privateKey(client *tool.Client) string {
	if client.Answers() {
		return client.Key
	}
	return ""
}
