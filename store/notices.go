package store

// Topic names something in the store that changes.
type Topic struct {
	Kind string // one of the Topic constants
	Key  string // the server's name, of TopicServer and TopicRelist; the replica's ID, of TopicSession; else ""
}

// The kinds of topics.
const (
	TopicServer     = "server"     // a server's list, instructions, and approvals
	TopicProvisions = "provisions" // provisioned tools; the detail
	TopicKeys       = "keys"       // API keys
	TopicVault      = "vault"      // sealed secrets and tokens; the detail
	TopicLearned    = "learned"    // what is learned from use
	TopicCalled     = "called"     // tools that clients called last
	TopicVectors    = "vectors"    // vectors of texts
	TopicRelist     = "relist"     // a server has announced that its lists changed

	// These topics have nothing stored.
	TopicLogin   = "login"   // a login has ended without a token; the detail is its ID
	TopicSession = "session" // a replica has taken over a session of the replica with the key; the detail is the session's hash in hexadecimal
	// TopicCallback says that a browser has returned from an authorization server to a replica which did not begin
	// the login; the detail is the query.
	TopicCallback = "callback"
)

// Notice is one notification.
type Notice struct {
	Topic
	Version int64  // of the topic; 0: nothing is stored; -1: the database has lost the topic's changes
	Detail  string // the changed part of the topic; "": all of it
}

// notice is the payload of a notification.
type notice struct {
	Kind    string `json:"kind"`
	Key     string `json:"key"`
	Version int64  `json:"version,omitempty"`
	Detail  string `json:"detail,omitempty"`
}
