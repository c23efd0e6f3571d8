package tool

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"toolfinch/internal/rawjson"
)

// ExtensionSkills is the extension with skills/list, skills/get and resources/directory/read (SEP-2640).
const ExtensionSkills = "io.modelcontextprotocol/skills"

// SkillFile is the end of the URI of a skill: the file that models read first.
const SkillFile = "/SKILL.md"

// Bounds of a skill (SEP-2640, "Limits").
const (
	MaxSkillFiles = 512
	MaxSkillBytes = 16 << 20
)

// Skill is the entry of a skill in skills/list.
type Skill struct {
	URI   string // of its SKILL.md
	Name  string
	Files []SkillResource // nil if Dynamic
	// Dynamic says that the files are made when they are read, so that nobody knows their digests.
	Dynamic bool
}

// SkillResource is a file of a skill.
type SkillResource struct {
	URI    string `json:"uri"`
	Digest string `json:"digest"` // "sha256:" and 64 hex digits
	// Size is the number of bytes, nil if the server does not say, against SEP-2640: the digest alone is checked.
	Size *int64 `json:"size,omitempty"`
}

// SkillOf decodes the definition of a skill.
func SkillOf(def *Def) Skill {
	s := Skill{URI: def.ID.Name, Name: rawjson.Text(rawjson.Member(rawjson.Member(def.Raw, "frontmatter"), "name"))}
	files := rawjson.Member(def.Raw, "resources")
	if s.Dynamic = rawjson.Text(files) == "dynamic"; !s.Dynamic {
		_ = json.Unmarshal(files, &s.Files)
	}
	return s
}

// Root returns the URI of the skill's directory, which ends without a slash.
func (s Skill) Root() string { return strings.TrimSuffix(s.URI, SkillFile) }

// File finds a file of the skill. A file of a dynamic skill has only a URI.
func (s Skill) File(uri string) (SkillResource, bool) {
	if s.Dynamic {
		return SkillResource{URI: uri}, s.checkURI(uri) == nil
	}
	for _, f := range s.Files {
		if f.URI == uri {
			return f, true
		}
	}
	return SkillResource{}, false
}

// Verify reports how content differs from the entry's size and digest.
func (f SkillResource) Verify(content []byte) error {
	if f.Digest == "" {
		return nil
	}
	if f.Size != nil && int64(len(content)) != *f.Size {
		return fmt.Errorf("it has %d bytes, its entry says %d", len(content), *f.Size)
	}
	if digest := SkillDigest(content); digest != f.Digest {
		return fmt.Errorf("its digest is %s, its entry says %s", digest, f.Digest)
	}
	return nil
}

// SkillDigest returns the digest of a file as entries have it.
func SkillDigest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// skillUnder returns the entry of a skill with the URIs of its files under another root.
func skillUnder(raw json.RawMessage, from, to string) json.RawMessage {
	files := rawjson.Member(raw, "resources")
	if len(files) == 0 || files[0] != '[' {
		return raw
	}
	var moved []json.RawMessage
	for file := range rawjson.Elements(files) {
		uri := to + strings.TrimPrefix(rawjson.Text(rawjson.Member(file, "uri")), from)
		if set, err := rawjson.Set(file, "uri", rawjson.Quote(uri)); err == nil {
			file = set
		}
		moved = append(moved, file)
	}
	if set, err := rawjson.Set(raw, "resources", rawjson.Array(moved)); err == nil {
		return set
	}
	return raw
}

// isSkillName matches names of skills (agentskills.io/specification, "name").
var isSkillName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// check reports what breaks the rules of SEP-2640 for an entry.
func (s Skill) check() error {
	root := s.Root()
	switch {
	case root == s.URI:
		return fmt.Errorf("uri is %.100q, which does not end with %s", s.URI, SkillFile)
	case len(s.Name) > 64 || !isSkillName.MatchString(s.Name):
		return fmt.Errorf("frontmatter.name is %.100q, not 1 to 64 lower-case letters, digits and single hyphens", s.Name)
	case root[strings.LastIndex(root, "/")+1:] != s.Name:
		return fmt.Errorf("uri is %.100q, whose directory is not named %q as frontmatter.name", s.URI, s.Name)
	case len(s.Files) > MaxSkillFiles:
		return fmt.Errorf("resources has %d files, more than %d", len(s.Files), MaxSkillFiles)
	}
	seen := map[string]bool{}
	size := int64(0)
	for _, f := range s.Files {
		if err := s.checkURI(f.URI); err != nil {
			return err
		}
		if seen[f.URI] {
			return fmt.Errorf("resources has %.100q twice", f.URI)
		}
		seen[f.URI] = true
		if f.Size != nil {
			size += *f.Size
		}
	}
	switch {
	case size > MaxSkillBytes:
		return fmt.Errorf("the files have %d bytes, more than %d", size, MaxSkillBytes)
	case !s.Dynamic && !seen[s.URI]:
		return fmt.Errorf("resources lacks %.100q", s.URI)
	}
	return s.checkURI(s.URI)
}

// checkURI reports why a URI cannot be a file of the skill.
func (s Skill) checkURI(uri string) error {
	path, inside := strings.CutPrefix(uri, s.Root()+"/")
	if !inside {
		return fmt.Errorf("%.100q is outside of the skill %.100q", uri, s.Root())
	}
	plain := UnescapeURI(path)
	if strings.ContainsAny(path, "?#") || strings.ContainsFunc(plain, unicode.IsControl) {
		return fmt.Errorf("%.100q has characters that no path has", uri)
	}
	for part := range strings.FieldsFuncSeq(plain+"/", func(r rune) bool { return r == '/' || r == '\\' }) {
		if part == "." || part == ".." {
			return fmt.Errorf("%.100q has the path element %q", uri, part)
		}
	}
	if strings.Contains(plain, "//") || strings.HasSuffix(plain, "/") || plain == "" {
		return fmt.Errorf("%.100q has an empty path element", uri)
	}
	return nil
}
