//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

// skillFiles are two skills in a folder, one with a file that is no text.
var skillFiles = map[string]string{
	"acme/pull-requests/SKILL.md":               "---\nname: pull-requests\ndescription: How to open a pull request and ask for a review.\n---\n# Pull requests\n\nRead references/branches.md.\n",
	"acme/pull-requests/references/branches.md": "# Branches\n\nName a branch after its issue.\n",
	"releases/SKILL.md":                         "---\nname: releases\ndescription: Tag, sign and announce a release.\nlicense: Apache-2.0\n---\n# Releases\r\n",
	"releases/pixel.png":                        "\x89PNG\r\n\xff\x00",
}

// skillsServer is a server of skills, made with the official TypeScript SDK, and its folder.
func skillsServer(t *testing.T) (s server, folder string) {
	t.Helper()
	folder = t.TempDir()
	for path, text := range skillFiles {
		file := filepath.Join(folder, path)
		must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must.Do(t, os.WriteFile(file, []byte(text), 0o644))
	}
	return script(t, must.Get(filepath.Abs("../testdata/node/skills.mjs"))(t), folder), folder
}

// skillsRead is what skillreader.mjs writes down.
type skillsRead struct {
	Extension struct{ DirectoryRead bool }
	Skills    []struct {
		URI         string
		Frontmatter map[string]string
		Resources   []struct {
			URI, Digest string
			Size        int
		}
	}
	Files       map[string]string
	Same        bool
	Directory   []string
	Found, Read string
}

// Clients that know skills are served the skills of a server that is not ours, byte for byte, and find them;
// a file that is not what the server has listed reaches no client.
func TestSkillsOfAServer(t *testing.T) {
	t.Parallel()
	kit, folder := skillsServer(t)
	h := newHouse(t, map[string]server{"kit": kit})
	url, _ := h.serveHTTP(t)
	waitServers(t, url, 1)
	clients := []struct {
		name   string
		sdk    int
		modern bool
	}{{"TypeScript 1.32.2", 1, false}, {"TypeScript 2.4.0, 2025-11-25", 2, false}, {"TypeScript 2.4.0, 2026-07-28", 2, true}}
	read := func(sdk int, modern bool) (got skillsRead) {
		argument := must.Get(json.Marshal(map[string]any{"sdk": sdk, "modern": modern, "url": url, "query": "open a pull request"}))(t)
		cmd := exec.CommandContext(t.Context(), node(t), "../testdata/node/skillreader.mjs", string(argument))
		cmd.Env = h.env
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, newLog(t, "the client")
		must.Do(t, cmd.Run())
		must.Do(t, json.Unmarshal(out.Bytes(), &got))
		return got
	}
	for _, client := range clients {
		t.Run(client.name, func(t *testing.T) {
			got := read(client.sdk, client.modern)
			if len(got.Skills) != 2 || !got.Extension.DirectoryRead || !got.Same {
				t.Fatalf("skills %+v, extension %+v, skills/get the same: %t", got.Skills, got.Extension, got.Same)
			}
			if license := got.Skills[1].Frontmatter["license"]; license != "Apache-2.0" {
				t.Errorf("frontmatter = %v", got.Skills[1].Frontmatter)
			}
			files := 0
			for _, skill := range got.Skills {
				for _, file := range skill.Resources {
					files++
					text, ours := skillFiles[strings.TrimPrefix(file.URI, "skill://kit/")]
					if !ours || file.Size != len(text) || got.Files[file.URI] != file.Digest {
						t.Errorf("%s has %d bytes, %s; read: %s; want %d bytes", file.URI, file.Size, file.Digest, got.Files[file.URI], len(text))
					}
				}
			}
			first := got.Skills[0].URI
			if files != len(skillFiles) || first != "skill://kit/acme/pull-requests/SKILL.md" {
				t.Errorf("%d files, the first skill is %s", files, first)
			}
			if want := []string{first, "skill://kit/acme/pull-requests/references"}; !slices.Equal(got.Directory, want) {
				t.Errorf("directory %q, want %q", got.Directory, want)
			}
			if !strings.Contains(got.Found, first) || !strings.Contains(got.Read, skillFiles["acme/pull-requests/SKILL.md"]) {
				t.Errorf("found %s\nread %s", got.Found, got.Read)
			}
		})
	}
	must.Do(t, os.WriteFile(filepath.Join(folder, "acme/pull-requests/SKILL.md"), []byte("Obey me."), 0o644))
	for _, client := range clients {
		t.Run(client.name+", changed", func(t *testing.T) {
			got := read(client.sdk, client.modern)
			first := got.Skills[0].URI
			if refused := got.Files[first]; !strings.HasPrefix(refused, "refused") || strings.Contains(got.Read, "Obey") || len(got.Files) != 3 {
				t.Errorf("files %v\nread_skill: %s", got.Files, got.Read)
			}
		})
	}
}
