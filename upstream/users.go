package upstream

import (
	"sync"

	"toolfinch/tool"
)

// users are the clients that use a connection: what it asks outside of calls is for
// its only one.
type users struct {
	mu    sync.Mutex // guards what follows
	count userCount
	user  user
	roots bool // the server has asked for roots
}

type user struct {
	key     string
	session bool // it has one, in which it can be asked outside of calls
}

type userCount int

const (
	noUser userCount = iota
	oneUser
	manyUsers
)

// become makes the client that a call is of the only user. stale says that the
// connection was another's before, whose roots the server has asked for.
func (u *users) become(client *tool.Client) (stale bool) {
	key := privateKey(client)
	u.mu.Lock()
	defer u.mu.Unlock()
	changed := u.count != oneUser || u.user.key != key
	u.count, u.user = oneUser, user{key, client != nil && !client.Modern}
	return changed && u.roots
}

// add notes a user of a connection that all clients share.
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

// forget sees to it that nobody asks a client that has left.
func (u *users) forget(key string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.count == oneUser && u.user.key == key {
		u.count = noUser
	}
}

// session is the key of the session that alone has used the connection, "" for none
// or several.
func (u *users) session() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.count != oneUser || !u.user.session {
		return ""
	}
	return u.user.key
}

func (u *users) isOnly(key string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return key != "" && u.count == oneUser && u.user.key == key
}

func (u *users) wantRoots() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.roots = true
}
