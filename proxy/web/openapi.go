package web

import (
	_ "embed"
	"encoding/json"

	"toolfinch/internal/rawjson"
)

// openAPIDocument describes the API. openAPIFor replaces its version.
//
//go:embed openapi.json
var openAPIDocument []byte

func (s *server) openAPI(version string) func(*request) (any, error) {
	ready := document{body: openAPIFor(version)}
	return func(*request) (any, error) { return ready, nil }
}

func openAPIFor(version string) []byte {
	text, err := json.Marshal(version)
	if err != nil {
		panic("web: the version is no text: " + err.Error())
	}
	info, err := rawjson.Set(rawjson.Member(openAPIDocument, "info"), "version", text)
	if err == nil {
		info, err = rawjson.Set(openAPIDocument, "info", info)
	}
	if err != nil { // cannot happen: the embedded document is an object with a version
		panic("web: openapi.json: " + err.Error())
	}
	return info
}
