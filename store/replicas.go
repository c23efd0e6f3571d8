package store

import "time"

// Replica is one of several processes that serve the same clients over one store.
type Replica struct {
	ID      string // unique, chosen at its start
	Name    string // what people call it
	Address string // host:port by which others reach it, "" where they cannot
	Version string // of the program
	Servers string // a hash of the names of its servers
	Policy  string // a hash of its configuration and policies
	Leads   []string
	Started time.Time
	Seen    time.Time     // when it was last there
	Up      time.Duration // how long it has been there, by the database's clock
}

// Topic is something that changes in the store.
type Topic struct {
	Kind string // one of the constants
	Key  string // the server's name, of TopicServer; else ""
}

// The kinds of topics.
const (
	TopicServer    = "server"    // its list, its instructions, what is approved of it
	TopicDecisions = "decisions" // what the owner approved and rejected
	TopicRelist    = "relist"    // a server says that its lists have changed; nothing is stored
)

// Notice is what is notified.
type Notice struct {
	Topic
	Version int64  // of the topic; 0 for what has none: it asks for something
	Detail  string // what of the topic, "" for all of it
}
