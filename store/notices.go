package store

// Topic is something that changes in the store.
type Topic struct {
	Kind string // one of the constants
	Key  string // the server's name, of TopicServer and TopicRelist; the replica's ID, of TopicSession; else ""
}

// The kinds of topics.
const (
	TopicServer     = "server"     // its list and instructions, and what of them is approved
	TopicProvisions = "provisions" // what may be called in gated views; the detail is a JSON array of view and owner
	TopicKeys       = "keys"       // API keys that were made or revoked
	TopicVault      = "vault"      // sealed secrets, tokens among them; the detail is the name
	TopicLearned    = "learned"    // what was learned from use
	TopicCalled     = "called"     // what clients called in their last sessions
	TopicVectors    = "vectors"    // texts that were embedded
	TopicRelist     = "relist"     // a server says that its lists have changed

	// Nothing is stored of these.
	TopicLogin   = "login"   // a login has ended without a token; the detail is its ID
	TopicSession = "session" // another replica has taken a session of one, the key, over; the detail is its hash in hexadecimal
	// TopicCallback is that a browser has come back from an authorization server to a replica where its login did not
	// begin; the detail is the query.
	TopicCallback = "callback"
)

// Notice is what is notified.
type Notice struct {
	Topic
	Version int64  // of the topic; 0 for what is not stored, -1 where the database knows of no change any more
	Detail  string // what of the topic; "" for all of it
}

// notice is the payload of a notification.
type notice struct {
	Kind    string `json:"kind"`
	Key     string `json:"key"`
	Version int64  `json:"version,omitempty"`
	Detail  string `json:"detail,omitempty"`
}
