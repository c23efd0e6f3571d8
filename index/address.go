package index

import (
	"path"
	"regexp"
	"strings"
)

// Kinds of address in a query, as phrases name them.
const (
	addressURL      = "URL"
	addressEmail    = "EMAIL"
	addressIP       = "IP"
	addressFolder   = "FOLDER"
	addressFile     = "FILE"
	addressDocument = "DOCUMENT" // a file whose extension is a word, such as "pdf"
)

var (
	isURL   = regexp.MustCompile(`(?i)^([a-z][a-z0-9+.-]*://|www\.|localhost:\d)\S*|^([a-z0-9-]+\.)+(com|org|net|io|dev|ai|app|co|so|edu|gov|info|me|de|fr|es|it|nl|ch|at|uk|eu|us|ca|au|in|br|cn|jp|cloud|page|site|xyz)(:\d+)?(/\S*)?$`)
	isIP    = regexp.MustCompile(`^\d{1,3}(\.\d{1,3}){3}(/\d+|:\d+)?$`)
	isEmail = regexp.MustCompile(`^[^\s@/:]+@[^\s@/:]+\.[a-zA-Z]{2,}$`)
	// A file's name alone is an address if its extension is an usual one: "v1.2" and "Node.js" are none.
	isPath = regexp.MustCompile(`(?i)^(~|\.{1,2})?/[\w.~-]|^[a-z]:\\|^[\w.@-]+(/[\w.@ -]+)*/([\w.-]+\.[a-z0-9]{1,5})?$|^[\w*-][\w.*-]*\.(txt|md|json|ya?ml|toml|csv|tsv|xlsx?|docx?|pptx?|pdf|png|jpe?g|gif|svg|py|ts|tsx|go|rs|java|cpp|html?|css|sh|log|sql|xml|ini|env|zip|tar|gz|mp3|mp4|wav|ipynb)$`)
)

// address returns the kind of address that a word of a query is, "" for none, and the words to search for instead:
// the site of a URL, the extension of a path. The rest names what the address leads to, not the tool.
func address(word string) (kind, words string) {
	if !strings.ContainsAny(word, "@/.\\:") {
		return "", ""
	}
	word = strings.TrimRight(strings.TrimLeft(word, "\"'`<([{"), "\"'`>)]},;:!?.")
	switch {
	case isEmail.MatchString(strings.TrimPrefix(word, "mailto:")):
		return addressEmail, ""
	case isIP.MatchString(word):
		return addressIP, ""
	case isURL.MatchString(word):
		_, rest, found := strings.Cut(word, "://")
		if !found {
			rest = word
		}
		host, _, _ := strings.Cut(rest, "/")
		labels := strings.Split(strings.TrimPrefix(host, "www."), ".")
		return addressURL, strings.Join(labels[:max(1, len(labels)-1)], " ")
	case isPath.MatchString(word):
		extension := strings.TrimPrefix(path.Ext(word), ".")
		switch {
		case extension == "" || strings.HasSuffix(word, "/"):
			return addressFolder, ""
		case concepts()[stem(strings.ToLower(extension))] != "":
			return addressDocument, extension
		}
		return addressFile, extension
	}
	return "", ""
}
