package configs

import (
	"encoding/base64"
	"fmt"
	"net"
	"time"
)

// Cluster is how this process is one of several replicas that serve the same clients.
type Cluster struct {
	Listen  string        // host:port at which other replicas reach this one
	Address string        // host:port by which they do; "" for this machine's name and the port of Listen
	Name    string        // what people call this replica; "" for this machine's name
	Keys    []ClusterKey  // at least one; the first makes what the others only open
	Drain   time.Duration // how long calls may go on once this replica is told to stop
}

// ClusterKey is a secret that all replicas share.
type ClusterKey [32]byte

// String shows nothing of the key.
func (ClusterKey) String() string { return mask }

const (
	// DefaultClusterListen is Cluster.Listen where nothing is said.
	DefaultClusterListen = "0.0.0.0:7391"
	// DefaultClusterDrain is Cluster.Drain where nothing is said: less than what Kubernetes
	// gives a container to end.
	DefaultClusterDrain = 25 * time.Second
	// maxClusterKeys is how many keys there may be: two while they are replaced, and some to spare.
	maxClusterKeys = 8
)

// clusterKeys describes all keys of cluster.
var clusterKeys = section[Cluster]{
	keys: keys{
		{
			name: "keys", change: restart,
			doc: "secrets that all replicas share, each 32 random bytes in base64, as `openssl rand -base64 32` prints them; best variables, or `${secret:NAME}`. " +
				"The first makes session IDs and certificates, and all are taken. Required",
			value: in(func(c *Cluster) *[]ClusterKey { return &c.Keys }).is(list[ClusterKey]{item: clusterKey{}}),
		},
		{
			name: "listen", change: restart,
			doc:   "`host:port` at which other replicas reach this one, over TLS that nobody without a key passes",
			value: in(func(c *Cluster) *string { return &c.Listen }).is(str{check: listen}, DefaultClusterListen),
		},
		{
			name: "address", change: restart, without: "this machine's name, and the port of `listen`",
			doc:   "`host:port` by which they reach it",
			value: in(func(c *Cluster) *string { return &c.Address }).is(str{check: reachable}),
		},
		{
			name: "name", change: restart, without: "this machine's name",
			doc:   "what people call this replica",
			value: in(func(c *Cluster) *string { return &c.Name }).is(str{check: replicaName}),
		},
		{
			name: "drain", change: restart,
			doc:   "how long calls may go on once this replica is told to stop, 1s to 1h",
			value: in(func(c *Cluster) *time.Duration { return &c.Drain }).is(duration{time.Second, time.Hour, "25s"}, DefaultClusterDrain),
		},
	},
	check: func(d *decoder, n *node, label string, c *Cluster) {
		if n.given("keys") == nil {
			d.fail(n, label+" has no keys", "keys: [${CLUSTER_KEY}], 32 random bytes in base64, the same for all replicas")
		}
		if len(c.Keys) > maxClusterKeys {
			d.fail(n.given("keys"), fmt.Sprintf("%s.keys has %d keys, more than %d", label, len(c.Keys), maxClusterKeys), "two are enough while one is replaced")
		}
	},
}

// clusterKind is a mapping; nil where this process is all there is.
type clusterKind struct{}

func (clusterKind) read(d *decoder, n *node, label string, to **Cluster) bool {
	c := clusterKeys.fresh()
	if !clusterKeys.read(d, n, label, &c) {
		return false
	}
	*to = &c
	return true
}

func (clusterKind) show(s *secrets, c *Cluster) *node {
	if c == nil {
		return nil
	}
	return clusterKeys.show(s, *c)
}

func (clusterKind) schema() schema { return clusterKeys.schema() }

// clusterKey is 32 bytes in base64, which are never printed.
type clusterKey struct{}

func (clusterKey) read(d *decoder, n *node, label string, to *ClusterKey) bool {
	var text string
	if !(str{}).read(d, n, label, &text) {
		return false
	}
	for _, form := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if key, err := form.DecodeString(text); err == nil && len(key) == len(to) {
			*to = ClusterKey(key)
			return true
		}
	}
	d.fail(n, label+" must be 32 bytes in base64", "as openssl rand -base64 32 prints them")
	return false
}

func (clusterKey) show(*secrets, ClusterKey) *node { return textNode(mask) }

func (clusterKey) schema() schema { return anyText }

// reachable checks an address that others connect to.
func reachable(d *decoder, n *node, label string, text *string) bool {
	if !listen(d, n, label, text) {
		return false
	}
	host, port, _ := net.SplitHostPort(*text)
	if ip := net.ParseIP(host); host == "" || port == "0" || ip != nil && ip.IsUnspecified() {
		d.mustBe(n, label, "a host and port that other machines connect to", "like replica-1.internal:7391")
		return false
	}
	return true
}

// maxReplicaName is how long the name of a replica may be, in bytes.
const maxReplicaName = 100

func replicaName(d *decoder, n *node, label string, text *string) bool {
	if !notEmpty(d, n, label, text) {
		return false
	}
	for _, r := range *text {
		if r <= ' ' || r > '~' || len(*text) > maxReplicaName {
			d.mustBe(n, label, "up to 100 letters, digits and signs, without spaces", "like replica-1")
			return false
		}
	}
	return true
}

// checkShared refuses what only a store in PostgreSQL can have.
func (d *decoder) checkShared(c *Config) {
	if store := d.origins["store"]; c.Store != "" || store.node != nil && !store.ok {
		return
	}
	const hint = "store: postgres://USER:PASSWORD@HOST/DATABASE"
	if from := d.origins["cluster"]; c.Cluster != nil {
		d.fail(from.node, from.label+" needs a store that all replicas share", hint)
	}
	if from := d.origins["store_fallback"]; c.StoreFallback != "" {
		d.fail(from.node, from.label+" is for a store in PostgreSQL: SQLite is a file of this machine already", hint)
	}
}

// Replicated reports whether other replicas reach this process: one on standard input and output
// has no sessions that are anybody else's.
func (c *Config) Replicated() bool { return c.Cluster != nil && c.Transport == TransportHTTP }
