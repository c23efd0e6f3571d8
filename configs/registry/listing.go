package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
)

// The bounds of a listing.
const (
	maxText   = 2000 // bytes of an argument, a header, a URL
	maxAbout  = 300  // bytes of a description
	maxWays   = 32
	maxInputs = 200 // of one way
)

// Way is a way to start or reach a server.
type Way struct {
	Kind string // "npm", "pypi", "oci", "nuget", "mcpb", another type of package, or "remote"
	At   string // identifier of the package, or URL

	pkg    *pack
	remote *remote
}

// document is the API's answer for a version of a server.
type document struct {
	Server struct {
		Name, Title, Description, Version, WebsiteURL, Status string
		Repository                                            struct{ URL string }
		Packages                                              []pack
		Remotes                                               []remote
	}
	Meta struct {
		Official struct{ Status, StatusMessage string } `json:"io.modelcontextprotocol.registry/official"`
	} `json:"_meta"`
}

// pack is a package with a server.
type pack struct {
	RegistryType, RegistryBaseURL, Identifier string
	Version, RuntimeHint                      string
	Transport                                 struct{ Type, URL string }
	RuntimeArguments, PackageArguments        []input
	EnvironmentVariables                      []input
}

// remote is a server at a URL.
type remote struct {
	Type, URL string
	Headers   []input
	Variables map[string]input
}

// input is a text, or a part of one, that the user may have to give. Its value may have
// names of variables in braces.
type input struct {
	Name, Type, ValueHint            string
	Description, Format, Placeholder string
	IsRequired, IsSecret, IsRepeated bool
	Value, Default                   text
	Choices                          []text
	Variables                        map[string]input
}

// text is a string, or in older documents a number or boolean.
type text string

// UnmarshalJSON keeps a value that is no string as it is written; null is "".
func (t *text) UnmarshalJSON(data []byte) error {
	switch data[0] {
	case '"':
		return json.Unmarshal(data, (*string)(t))
	case '{', '[':
		return errors.New("a text is expected, not " + string(data[:1]))
	case 'n':
		*t = ""
	default:
		*t = text(data)
	}
	return nil
}

// listing reads an answer.
func listing(raw json.RawMessage) (Listing, error) {
	var d document
	if err := json.Unmarshal(raw, &d); err != nil {
		return Listing{}, fmt.Errorf("a server that cannot be read: %w", inWords(err))
	}
	s, official := d.Server, d.Meta.Official
	if s.Name == "" {
		return Listing{}, errors.New("a server without a name")
	}
	l := Listing{
		Name: rawjson.Clip(s.Name, maxAbout), Title: about(s.Title), Description: about(s.Description), Version: rawjson.Clip(s.Version, 80),
		Website: webAddress(s.WebsiteURL), Repository: webAddress(s.Repository.URL),
		Status: rawjson.Clip(official.Status, 80), StatusMessage: about(official.StatusMessage),
	}
	if l.Status == "" {
		l.Status = rawjson.Clip(s.Status, 80) // as in documents before September 2025
	}
	for i := range s.Packages {
		l.Ways = append(l.Ways, Way{Kind: rawjson.Clip(s.Packages[i].RegistryType, 80), At: rawjson.Clip(s.Packages[i].Identifier, maxAbout), pkg: &s.Packages[i]})
	}
	for i := range s.Remotes {
		l.Ways = append(l.Ways, Way{Kind: KindRemote, At: rawjson.Clip(s.Remotes[i].URL, maxAbout), remote: &s.Remotes[i]})
	}
	l.Ways = l.Ways[:min(len(l.Ways), maxWays)]
	return l, nil
}

func about(text string) string { return rawjson.Clip(printable.Line(text), maxAbout) }

// webAddress returns an address that a browser can open, else "".
func webAddress(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || len(text) > maxText {
		return ""
	}
	return text
}

// KindRemote is the kind of a server at a URL.
const KindRemote = "remote"

// Listing is a version of a server in a registry.
type Listing struct {
	Name        string `json:"name"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description"`
	Version     string `json:"version"`
	Website     string `json:"website,omitempty"`
	Repository  string `json:"repository,omitempty"`
	// Status is "active", "deprecated", "deleted", or "" if the registry has none.
	Status        string `json:"status,omitempty"`
	StatusMessage string `json:"status_message,omitempty"`
	Ways          []Way  `json:"-"` // packages, then remotes
}

// Kinds returns the kinds of the ways, each once.
func (l Listing) Kinds() []string {
	kinds := []string{}
	seen := map[string]bool{}
	for _, way := range l.Ways {
		if !seen[way.Kind] {
			kinds = append(kinds, way.Kind)
		}
		seen[way.Kind] = true
	}
	return kinds
}

// inWords explains an invalid answer without terms of Go.
func inWords(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if wrong.Field == "" {
			return fmt.Errorf("it is of type %s", wrong.Value)
		}
		return fmt.Errorf("%q is of type %s", strings.ToLower(wrong.Field), wrong.Value)
	}
	return errors.New("it is not JSON")
}
