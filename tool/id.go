package tool

// ID names a tool of an upstream. It is what configuration and commands use;
// what a client sees is the tool's exposed name.
type ID struct {
	Server string // configured name of the upstream
	Name   string // the tool's own name, as the upstream lists it
}

// String returns "server.name". It is for people and look-ups by table: both
// parts may contain dots, so it cannot be split back.
func (id ID) String() string { return id.Server + "." + id.Name }
