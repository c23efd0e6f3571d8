package configs

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	env := environ("A=1", "B_2=two", "EMPTY=", "NESTED=${A}")
	tests := []struct{ in, want, wantErr string }{
		{in: "", want: ""},
		{in: "plain $A $5 $$ $", want: "plain $A $5 $$ $"},
		{in: "${A}", want: "1"},
		{in: "${env:A}", want: "1"},
		{in: "x${A}y${B_2}z", want: "x1ytwoz"},
		{in: "$${A}", want: "${A}"},
		{in: "$$${A}", want: "$${A}"},
		{in: "$${A} ${A}", want: "${A} 1"},
		{in: "${A:-no}", want: "1"},
		{in: "${NO:-yes}", want: "yes"},
		{in: "${env:NO:-yes}", want: "yes"},
		{in: "${NO:-}", want: ""},
		{in: "${NO:-a:-b}", want: "a:-b"},
		{in: "${EMPTY}", want: ""},
		{in: "${EMPTY:-full}", want: "full"},
		{in: "${NO:-${A}}", want: "1"},
		{in: "${NO:-x${NO:-${B_2}}y}z", want: "xtwoyz"},
		{in: "${A:-${NO}}", want: "1"}, // the default is not needed
		{in: "${NO:-$${x}}", want: "${x}"},
		{in: "${NESTED}", want: "${A}"}, // a value is not looked into
		{in: "é${A}ü", want: "é1ü"},
		{in: "${NO}", wantErr: "variable NO is not set"},
		{in: "${NO} ${NEITHER}", wantErr: "variable NO is not set\nvariable NEITHER is not set"},
		{in: "${NO:-${NEITHER}}", wantErr: "variable NEITHER is not set"},
		{in: "${input:key}", wantErr: "${input:key} asks a person, which only an editor can do"},
		{in: "${workspaceFolder}", wantErr: "${workspaceFolder} is known to editors only"},
		{in: "${config:x}", wantErr: "${config:x} is known to editors only"},
		{in: "${}", wantErr: "a ${...} that names no variable"},
		{in: "${a b}", wantErr: "a ${...} that names no variable"},
		{in: "${1}", wantErr: "a ${...} that names no variable"},
		{in: "${A", wantErr: "a ${ without its }"},
		{in: "${NO:-${A}", wantErr: "a ${ without its }"},
		{in: strings.Repeat("${NO:-", 20) + strings.Repeat("}", 20), wantErr: "defaults nested deeper than 10"},
	}
	for _, tt := range tests {
		got, err := expand(tt.in, env)
		var messages []string
		for _, e := range substitutionErrors(err) {
			messages = append(messages, e.message)
		}
		if msg := strings.Join(messages, "\n"); msg != tt.wantErr || err == nil && got != tt.want {
			t.Errorf("%q: got %q, %q; want %q, %q", tt.in, got, msg, tt.want, tt.wantErr)
		}
	}
}

func TestDefaultDataDir(t *testing.T) {
	abs := t.TempDir()
	tests := []struct {
		goos string
		env  []string
		want string
	}{
		{"linux", nil, home + "/.local/share/toolfinch"},
		{"linux", []string{"XDG_DATA_HOME=" + abs}, abs + "/toolfinch"},
		{"linux", []string{"XDG_DATA_HOME=relative"}, home + "/.local/share/toolfinch"},
		{"darwin", []string{"XDG_DATA_HOME=" + abs}, home + "/Library/Application Support/toolfinch"},
		{"windows", []string{"LOCALAPPDATA=" + abs}, abs + "/toolfinch"},
		{"windows", nil, home + "/AppData/Local/toolfinch"},
		{"linux", []string{"HOME="}, ""},
		{"windows", []string{"USERPROFILE="}, ""},
	}
	for _, tt := range tests {
		got, err := defaultDataDir(tt.goos, environ(tt.env...))
		if (err != nil) != (tt.want == "") || got != filepath.FromSlash(tt.want) {
			t.Errorf("%s %q: got %q, %v; want %q", tt.goos, tt.env, got, err, tt.want)
		}
	}
}

func TestNearest(t *testing.T) {
	tests := []struct{ word, want string }{
		{"comand", "command"},
		{"commadn", "command"},
		{"Command", "command"},
		{"arg", "args"},
		{"callTimeout", "call_timeout"},
		{"connect-timeout", "connect_timeout"},
		{"uri", "url"},
		{"environment", ""},
		{"", ""},
		{strings.Repeat("command", 20), ""},
	}
	for _, tt := range tests {
		if got, _ := closest(tt.word, serverKeys.names()); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.word, got, tt.want)
		}
	}
}
