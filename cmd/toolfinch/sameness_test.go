package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"toolfinch/configs"
	"toolfinch/internal/must"
)

// What keeps two agents from sharing a toolfinch is what its servers, hooks and configuration get; the rest of an
// agent's environment, and its working folder, do not.
func TestWhatAgentsMustHaveInCommon(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "toolfinch.yaml")
	must.Do(t, os.WriteFile(filepath.Join(dir, "server"), []byte("#!/bin/sh\n"), 0o755))
	const plain = "data_dir: data\nmcp_servers: {a: {command: server, env: {A: '${VALUE:-}'}, inherit_env: [TOKEN]}}\n"
	read := func(t *testing.T, text string, env map[string]string) sameness {
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		for name, value := range env {
			t.Setenv(name, value)
		}
		return samenessOf(must.Get(configs.Load(configs.Options{Path: path}))(t), "")
	}
	for _, test := range []struct {
		name, text string
		env        map[string]string
		want       []string
	}{
		{name: "nothing", text: plain},
		{name: "terminals", text: plain, env: map[string]string{"TERM": "other", "PWD": "/other", "LANG": "C", "npm_config_local_prefix": "/other", "CLAUDECODE": "1"}},
		{name: "what an agent reaches its model by", text: plain, env: map[string]string{"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://127.0.0.1:1"}},
		{name: "what the embedder is reached by", text: plain + "embedder: OPENAI\n", env: map[string]string{"OPENAI_API_KEY": "k"}, want: []string{partConfiguration, "the variable OPENAI_API_KEY"}},
		{name: "a variable of the configuration", text: plain, env: map[string]string{"VALUE": "b"}, want: []string{"the variable VALUE"}},
		{name: "what a server inherits", text: plain, env: map[string]string{"TOKEN": "b"}, want: []string{"the variable TOKEN"}},
		{name: "what every server inherits", text: plain, env: map[string]string{"NPM_CONFIG_USERCONFIG": "/other", "TZ": "UTC+3"}, want: []string{"the variable NPM_CONFIG_USERCONFIG", "the variable TZ"}},
		{name: "a folder before others on the PATH", text: plain, env: map[string]string{"PATH": t.TempDir() + string(filepath.ListSeparator) + dir}},
		{name: "a relative folder", text: plain, env: map[string]string{"PATH": "bin" + string(filepath.ListSeparator) + dir}},
		{name: "another program", text: plain, env: map[string]string{"PATH": "/nowhere"}, want: []string{"the program server"}},
		{name: "the file", text: plain + "top_k: 7\n", want: []string{partConfiguration}},
		{name: "where it listens", text: plain + "listen: 127.0.0.1:1\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("PATH", dir)
			before := read(t, plain, nil)
			after := read(t, test.text, test.env)
			if got := after.differs([]byte("key"), before.digests([]byte("key"))); !slices.Equal(got, test.want) {
				t.Errorf("they differ in %q, want %q", got, test.want)
			}
		})
	}
	t.Run("a hook", func(t *testing.T) {
		const hook = plain + "list_changed_exec: 'true'\n"
		before := read(t, hook, nil)
		if got := read(t, hook, map[string]string{"ANY": "b"}).differs([]byte("key"), before.digests([]byte("key"))); !slices.Equal(got, []string{"the variable ANY"}) {
			t.Errorf("they differ in %q", got)
		}
	})
	t.Run("how it was found", func(t *testing.T) {
		config := must.Get(configs.Load(configs.Options{Path: path}))(t)
		before := samenessOf(config, "")
		config.Found = true
		if got := samenessOf(config, "").differs([]byte("key"), before.digests([]byte("key"))); !slices.Equal(got, []string{partConfiguration}) {
			t.Errorf("they differ in %q", got)
		}
	})
}
