package group

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// What a child may miss is named: the usual variables, and those that it names itself.
func TestWithheld(t *testing.T) {
	for _, pair := range os.Environ() { // of this machine
		if name, _, _ := strings.Cut(pair, "="); matchesAny(needed, name) {
			t.Setenv(name, "")
		}
	}
	for _, name := range []string{"DOCKER_HOST", "KUBECONFIG", "SSH_AUTH_SOCK", "AWS_PROFILE", "JAVA_HOME", "MY_SERVICE_KEY"} {
		t.Setenv(name, "x")
	}
	for _, test := range []struct {
		own     map[string]string
		inherit []string
		words   string
		want    []string
	}{
		{nil, []string{"AWS_*"}, "", []string{"DOCKER_HOST", "JAVA_HOME", "KUBECONFIG", "SSH_AUTH_SOCK"}},
		{map[string]string{"KUBECONFIG": ""}, []string{"AWS_*", "JAVA_HOME"}, "MY_SERVICE_KEY is required, see HOME", []string{"MY_SERVICE_KEY", "DOCKER_HOST", "SSH_AUTH_SOCK"}},
		{nil, []string{"*"}, "MY_SERVICE_KEY", nil},
	} {
		if got := Withheld(test.own, test.inherit, test.words); !slices.Equal(got, test.want) {
			t.Errorf("%v %v %q: %v, want %v", test.own, test.inherit, test.words, got, test.want)
		}
	}
}
