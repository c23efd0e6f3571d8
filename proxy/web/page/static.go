package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
)

//go:embed static/*.css static/*.js static/*.svg
var staticFiles embed.FS

const staticPath = "static/"

// types are the content types of the files. The operating system's types may be wrong.
var types = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

// files are the stylesheet, scripts and images. Each URL has the digest of all files, so browsers may cache them
// forever, and modules can import each other by relative URLs.
type files struct {
	digest string
	byName map[string][]byte
}

func embedded() *files {
	f := &files{byName: map[string][]byte{}}
	sum := sha256.New()
	all, _ := fs.ReadDir(staticFiles, "static") // cannot fail: the files are embedded
	for _, file := range all {
		content, _ := staticFiles.ReadFile("static/" + file.Name())
		f.byName[file.Name()] = content
		sum.Write(content)
	}
	f.digest = hex.EncodeToString(sum.Sum(nil))[:12]
	return f
}

// base returns the URL of the files, relative to Path.
func (f *files) base() string { return staticPath + f.digest + "/" }

// serve serves a file by digest and name. If an older page requests another digest, the file is served without caching.
func (f *files) serve(w http.ResponseWriter, r *http.Request, at string) {
	digest, name, _ := strings.Cut(at, "/")
	content, ok := f.byName[name]
	if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.NotFound(w, r)
		return
	}
	if digest == f.digest {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	w.Header().Set("Content-Type", types[path.Ext(name)])
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	_, _ = w.Write(content)
}
